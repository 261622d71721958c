package kernel

import (
	"fmt"
	"net/netip"
	"time"
)

// Key is a WireGuard key. It is never printed, not even a public one: the two cannot be told apart by
// looking.
type Key [32]byte

// Format prints a placeholder, whatever the verb.
func (Key) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[key]")) }

// MarshalText encodes a placeholder.
func (Key) MarshalText() ([]byte, error) { return []byte("[key]"), nil }

// Clear overwrites the key.
func (k *Key) Clear() { *k = Key{} }

// WireGuard is the configuration of a kernel WireGuard device with one peer.
type WireGuard struct {
	Private Key
	Port    int // UDP port to listen on

	Peer      Key // the peer's public key
	Preshared Key
	Endpoint  netip.AddrPort // the peer's outer address
	Allowed   []netip.Prefix // what the peer may send and be sent
}

// WireGuardStats are the counters of a device's one peer. Handshake is the time of the last one, zero if
// there was none.
type WireGuardStats struct {
	Sent, Received uint64
	Handshake      time.Time
}

// WireGuardPeer is one peer of one of the kernel's devices. Index is its place in the kernel's list: a peer
// is named by it, never by its key.
type WireGuardPeer struct {
	Device string
	Index  int
	WireGuardStats
}
