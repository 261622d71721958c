package tunnel

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// identity is an end's certificate with its private key, as OpenVPN reads them.
type identity struct {
	fingerprint string // SHA-256 of the certificate: what the other end trusts
	certificate []byte // PEM
	key         []byte // PEM; overwritten by clear
}

// clear overwrites the private key.
func (i identity) clear() { clear(i.key) }

// newIdentity makes a key and a certificate that it signs itself. Nobody looks at what the certificate
// says: its fingerprint is all that counts.
func newIdentity() (identity, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return identity{}, fmt.Errorf("make private key: %w", err)
	}
	defer clear(private)
	certificate := selfSigned(public, private)
	// OneAsymmetricKey of RFC 8410 §7: version 0, the algorithm, the seed.
	packed := append([]byte{0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20},
		private[:ed25519.SeedSize]...)
	defer clear(packed)
	sum := sha256.Sum256(certificate)
	return identity{
		fingerprint: spellFingerprint(sum[:]),
		certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
		key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: packed}),
	}, nil
}

// ed25519Identifier is the algorithm 1.3.101.112 (RFC 8410 §3).
var ed25519Identifier = der(0x30, der(6, []byte{0x2b, 0x65, 0x70}))

// selfSigned is a certificate of RFC 5280 §4.1. It is put together here because package crypto/x509 makes
// the program of small routers a megabyte larger.
func selfSigned(public ed25519.PublicKey, private ed25519.PrivateKey) []byte {
	commonName := []byte{0x55, 0x04, 0x03}
	name := der(0x30, der(0x31, der(0x30, der(6, commonName), der(12, []byte("chokepoint")))))
	// A node's clock may be anywhere.
	validity := der(0x30, der(0x17, []byte("700101000000Z")), der(0x18, []byte("99991231235959Z")))
	content := der(0x30,
		der(0xa0, der(2, []byte{2})), // version 3
		der(2, []byte{1}),            // serial number
		ed25519Identifier, name, validity, name,
		der(0x30, ed25519Identifier, bits(public)))
	return der(0x30, content, ed25519Identifier, bits(ed25519.Sign(private, content)))
}

// bits is a BIT STRING of whole bytes.
func bits(b []byte) []byte { return der(3, []byte{0}, b) }

// der encodes a value of up to 64 KiB (X.690 §8.1).
func der(tag byte, parts ...[]byte) []byte {
	value := bytes.Join(parts, nil)
	n := len(value)
	head := []byte{tag, byte(n)}
	switch {
	case n > 0xff:
		head = []byte{tag, 0x82, byte(n >> 8), byte(n)}
	case n > 0x7f:
		head = []byte{tag, 0x81, byte(n)}
	}
	return append(head, value...)
}

func spellFingerprint(sum []byte) string {
	var parts []string
	for _, b := range sum {
		parts = append(parts, fmt.Sprintf("%02X", b))
	}
	return strings.Join(parts, ":")
}

// parseFingerprint refuses what is not one: it becomes a line of the other end's configuration.
func parseFingerprint(text string) (string, error) {
	b, err := hex.DecodeString(strings.ReplaceAll(text, ":", ""))
	if err != nil || len(b) != sha256.Size || spellFingerprint(b) != text {
		return "", errors.New("parse fingerprint: want 32 bytes in hexadecimal with colons")
	}
	return text, nil
}

// controlKeySize is what tls-crypt takes: two keys of 64 bytes and two for HMAC, of which it uses the first
// halves.
const controlKeySize = 256

// controlKey spells the key that seals the control channel, from what both ends share.
func (k openVPN) controlKey(secret []byte) ([]byte, error) {
	raw, err := hkdf.Key(sha256.New, secret, nil, "chokepoint "+k.name+" control channel", controlKeySize)
	if err != nil {
		return nil, fmt.Errorf("derive key of %s: %w", k.name, err)
	}
	defer clear(raw)
	b := make([]byte, 0, 2*controlKeySize+128) // never grown: a copy left behind could not be overwritten
	b = append(b, "-----BEGIN OpenVPN Static key V1-----\n"...)
	for i := 0; i < len(raw); i += 16 {
		b = append(hex.AppendEncode(b, raw[i:i+16]), '\n')
	}
	return append(b, "-----END OpenVPN Static key V1-----\n"...), nil
}

// configSize is the room for a configuration: that of the smallest pipe.
const configSize = 4096

// configuration is what openvpn reads from its standard input. The caller overwrites it.
func (k openVPN) configuration(r request, c connect, me identity, control []byte) []byte {
	b := make([]byte, 0, configSize)
	line := func(format string, args ...any) { b = append(fmt.Appendf(b, format, args...), '\n') }
	line("dev %s", r.Device)
	line("dev-type tun")
	line("proto %s", k.protocol(r))
	if r.Near {
		line("client")
		line("remote %s %d", c.Endpoint.Addr(), c.Endpoint.Port())
		line("connect-retry 1 1")
	} else {
		line("mode server")
		line("tls-server")
		line("dh none")
		line("topology subnet")
		line("management-client-auth") // which is how a client gets its routes without a file
		line("auth-user-pass-optional")
	}
	if r.Near && k.tcp {
		line("nobind")
	} else {
		line("local %s", r.Outer)
		line("lport %d", r.Port)
	}
	line("peer-fingerprint %s", c.Public)
	line("data-ciphers %s", k.cipher)
	line("disable-dco")
	line("tun-mtu %d", r.MTU)
	line("mssfix 0") // and no fragment, which 2.6 refuses to be told as "fragment 0"
	// Addresses and routes are ours to set.
	line("ifconfig-noexec")
	line("route-noexec")
	line("ping-restart 0") // a tunnel may be idle for as long as others are measured
	line("management %s unix", managementPath)
	line("management-client") // the program ends when we hang up, or die
	line("management-hold")
	line("verb 3")
	line("suppress-timestamps")
	for _, part := range []struct {
		name string
		text []byte
	}{{"cert", me.certificate}, {"key", me.key}, {"tls-crypt", control}} {
		line("<%s>", part.name)
		b = append(b, part.text...)
		line("</%s>", part.name)
	}
	return b
}

func (k openVPN) protocol(r request) string {
	version := '4'
	if r.Outer.Is6() {
		version = '6'
	}
	switch {
	case !k.tcp:
		return fmt.Sprintf("udp%c", version)
	case r.Near:
		return fmt.Sprintf("tcp%c-client", version)
	}
	return fmt.Sprintf("tcp%c-server", version)
}

// clientRoutes tells a server what lies behind its client, in the lines of a client's configuration.
func clientRoutes(allowed []netip.Prefix) string {
	var b strings.Builder
	for _, p := range allowed {
		p = p.Masked()
		if p.Addr().Is6() {
			fmt.Fprintf(&b, "iroute-ipv6 %s\n", p)
			continue
		}
		mask := uint32(0xffffffff) << (32 - p.Bits())
		if p.Bits() == 0 {
			mask = 0
		}
		fmt.Fprintf(&b, "iroute %s %d.%d.%d.%d\n", p.Addr(), byte(mask>>24), byte(mask>>16), byte(mask>>8),
			byte(mask))
	}
	return b.String()
}
