package kernel

import (
	"fmt"
	"net/netip"
	"time"
)

// Key is a WireGuard key. It is never printed, not even a public key, because public and private keys look
// the same.
type Key [32]byte

// Format writes a placeholder, whatever the verb.
func (Key) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[key]")) }

// MarshalText returns a placeholder.
func (Key) MarshalText() ([]byte, error) { return []byte("[key]"), nil }

// Clear overwrites the key.
func (k *Key) Clear() { *k = Key{} }

// WireGuard is the configuration of a kernel WireGuard device with one peer.
type WireGuard struct {
	Private Key
	Port    int // UDP port

	Peer      Key // public key
	Preshared Key
	Endpoint  netip.AddrPort // outer address
	Allowed   []netip.Prefix // allowed IPs
}

// WireGuardStats are the counters of a peer, in bytes. Handshake is the time of the last handshake, zero if
// there was none.
type WireGuardStats struct {
	Sent, Received uint64
	Handshake      time.Time
}

// WireGuardPeer is a peer of a kernel WireGuard device. Index is its position in the kernel's list, which
// identifies the peer without exposing its key.
type WireGuardPeer struct {
	Device string
	Index  int
	WireGuardStats
}

// ESPCipher is a cipher for ESP.
type ESPCipher int

// Ciphers, all with an integrity check value of 128 bits.
const (
	ESPAESGCM128        ESPCipher = iota // RFC 4106
	ESPAESGCM256                         // RFC 4106
	ESPAESCBC256SHA256                   // RFC 3602, RFC 4868
	ESPChaCha20Poly1305                  // RFC 7634
)

// KeySize returns the size of one direction's key material in bytes: cipher key, then salt or nonce (RFC 4106
// §8.1, RFC 7634 §2) or integrity key.
func (c ESPCipher) KeySize() int {
	switch c {
	case ESPAESGCM128:
		return 16 + 4
	case ESPAESCBC256SHA256:
		return 32 + 32
	}
	return 32 + 4
}

// ESPKey is one direction's key material. It is never printed.
type ESPKey []byte

// Format writes a placeholder, whatever the verb.
func (ESPKey) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[key]")) }

// MarshalText returns a placeholder.
func (ESPKey) MarshalText() ([]byte, error) { return []byte("[key]"), nil }

// ESP is one end of an ESP tunnel (RFC 4303, tunnel mode) for both IP versions: two security associations,
// and the policies that select packets for them. Policies match all packets of the device that AddXfrm
// created with the same ID or, without a device, packets to and from the networks in Behind.
type ESP struct {
	ID            uint32 // of the tunnel and its device; never 0
	Cipher        ESPCipher
	Local, Remote netip.Addr // outer addresses
	Out, In       ESPAssociation
	Behind        []netip.Prefix // networks behind the other end; empty with a device
}

// device returns the interface ID of associations and policies, or 0 without a device.
func (e ESP) device() uint32 {
	if len(e.Behind) > 0 {
		return 0
	}
	return e.ID
}

// ESPAssociation is a security association for one direction. SPIs up to 255 are reserved.
type ESPAssociation struct {
	SPI uint32
	Key ESPKey
}

// ESPStats are the packet counters of one end's associations.
type ESPStats struct {
	Sent, Received           uint64 // packets
	SentBytes, ReceivedBytes uint64 // bytes of inner packets
	Replayed, Forged         uint64 // packets outside the replay window, or with a wrong ICV
}
