package kernel

import (
	"fmt"
	"net/netip"
	"time"
)

// Key is a WireGuard key. It is never printed, even if it is public, because public and private keys look the
// same.
type Key [32]byte

// Format writes a placeholder for every verb.
func (Key) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[key]")) }

// MarshalText returns a placeholder.
func (Key) MarshalText() ([]byte, error) { return []byte("[key]"), nil }

// Clear overwrites the key.
func (k *Key) Clear() { *k = Key{} }

// WireGuard is the configuration of a kernel WireGuard device that has one peer.
type WireGuard struct {
	Private Key
	Port    int // UDP port

	Peer      Key // public key of the peer
	Preshared Key
	Endpoint  netip.AddrPort // outer address of the peer
	Allowed   []netip.Prefix // allowed IPs of the peer
}

// WireGuardStats holds the counters of a peer, in bytes. Handshake is the time of the last handshake. It is
// zero if there was no handshake.
type WireGuardStats struct {
	Sent, Received uint64
	Handshake      time.Time
}

// WireGuardPeer is a peer of a kernel WireGuard device. Index is its position in the kernel's list. It
// identifies the peer without revealing the peer's key.
type WireGuardPeer struct {
	Device string
	Index  int
	WireGuardStats
}

// ESPCipher is a cipher for ESP.
type ESPCipher int

// These are the supported ciphers. All have an integrity check value of 128 bits.
const (
	ESPAESGCM128        ESPCipher = iota // RFC 4106
	ESPAESGCM256                         // RFC 4106
	ESPAESCBC256SHA256                   // RFC 3602 and RFC 4868
	ESPChaCha20Poly1305                  // RFC 7634
)

// KeySize returns the size in bytes of the key material for one direction. The key material consists of the
// cipher key, followed by the salt or nonce (RFC 4106 §8.1, RFC 7634 §2) or by the integrity key.
func (c ESPCipher) KeySize() int {
	switch c {
	case ESPAESGCM128:
		return 16 + 4
	case ESPAESCBC256SHA256:
		return 32 + 32
	}
	return 32 + 4
}

// ESPKey is the key material for one direction. It is never printed.
type ESPKey []byte

// Format writes a placeholder for every verb.
func (ESPKey) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[key]")) }

// MarshalText returns a placeholder.
func (ESPKey) MarshalText() ([]byte, error) { return []byte("[key]"), nil }

// ESP describes one end of an ESP tunnel (RFC 4303, tunnel mode) for both IP versions: two security
// associations, and the policies that select packets for them. The policies match all packets of the device
// that AddXfrm created with the same ID. If there is no device, they match packets to and from the networks
// in Behind.
type ESP struct {
	ID            uint32 // ID of the tunnel and its device; never 0
	Cipher        ESPCipher
	Local, Remote netip.Addr // outer addresses
	Out, In       ESPAssociation
	Behind        []netip.Prefix // networks behind the other end; empty if there is a device
}

// device returns the interface ID of associations and policies, or 0 if there is no device.
func (e ESP) device() uint32 {
	if len(e.Behind) > 0 {
		return 0
	}
	return e.ID
}

// ESPAssociation describes a security association for one direction. SPI must exceed 255, because smaller
// values are reserved.
type ESPAssociation struct {
	SPI uint32
	Key ESPKey
}

// ESPStats holds the counters of the associations at one end.
type ESPStats struct {
	Sent, Received           uint64 // in packets
	SentBytes, ReceivedBytes uint64 // inner packets, in bytes
	Replayed, Forged         uint64 // packets outside the replay window, and packets with a wrong ICV
}
