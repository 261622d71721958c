package kernel

import (
	"fmt"
	"net/netip"
	"time"
)

// Key is a WireGuard key. It is never printed, not even if public: public and private keys look alike.
type Key [32]byte

// Format prints a placeholder for any verb.
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
	Allowed   []netip.Prefix // addresses that the peer may use
}

// WireGuardStats are the counters of a device's only peer. Handshake is the time of the last one, zero if
// there was none.
type WireGuardStats struct {
	Sent, Received uint64
	Handshake      time.Time
}

// WireGuardPeer is one peer of one of the kernel's devices. Index is its place in the kernel's list, which
// identifies a peer instead of its key.
type WireGuardPeer struct {
	Device string
	Index  int
	WireGuardStats
}

// ESPCipher is a cipher of IPsec's ESP.
type ESPCipher int

// The ciphers, each with an integrity check value of 128 bits.
const (
	ESPAESGCM128        ESPCipher = iota // RFC 4106
	ESPAESGCM256                         // RFC 4106
	ESPAESCBC256SHA256                   // RFC 3602, RFC 4868
	ESPChaCha20Poly1305                  // RFC 7634
)

// KeySize returns the length in bytes of one direction's keys: the cipher's own, its salt or nonce (RFC 4106
// §8.1, RFC 7634 §2), the integrity key.
func (c ESPCipher) KeySize() int {
	switch c {
	case ESPAESGCM128:
		return 16 + 4
	case ESPAESCBC256SHA256:
		return 32 + 32
	}
	return 32 + 4
}

// ESPKey holds one direction's keys, concatenated. It is never printed.
type ESPKey []byte

// Format prints a placeholder for any verb.
func (ESPKey) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[key]")) }

// MarshalText encodes a placeholder.
func (ESPKey) MarshalText() ([]byte, error) { return []byte("[key]"), nil }

// ESP is one end of an ESP tunnel (RFC 4303, tunnel mode) that carries both versions of IP: two security
// associations, and the policies that direct packets through them: the packets of a device made by AddXfrm
// with the same ID or, without a device, all packets to and from the networks Behind the other end.
type ESP struct {
	ID            uint32 // of the tunnel and its device; never 0
	Cipher        ESPCipher
	Local, Remote netip.Addr // outer addresses
	Out, In       ESPAssociation
	Behind        []netip.Prefix // empty: there is a device
}

// device returns the ID that ties associations and policies to a device; 0 means no device.
func (e ESP) device() uint32 {
	if len(e.Behind) > 0 {
		return 0
	}
	return e.ID
}

// ESPAssociation is one direction. The receiver finds it by the SPI, which is above 255.
type ESPAssociation struct {
	SPI uint32
	Key ESPKey
}

// ESPStats counts packets that the associations of one end have sealed, opened and refused.
type ESPStats struct {
	Sent, Received           uint64 // packets
	SentBytes, ReceivedBytes uint64 // of the packets inside, with their headers
	Replayed, Forged         uint64 // packets: outside the window, failed integrity check
}
