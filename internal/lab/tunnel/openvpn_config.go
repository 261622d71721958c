package tunnel

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"strings"
	"time"
)

// identity is an end's certificate with its private key, as OpenVPN reads
// them.
type identity struct {
	fingerprint string // SHA-256 of the certificate: what the other end trusts
	certificate []byte // PEM
	key         []byte // PEM; overwritten by clear
}

// clear overwrites the private key.
func (i identity) clear() { clear(i.key) }

// newIdentity makes a key and a certificate that it signs itself. Nobody looks
// at what the certificate says: its fingerprint is all that counts.
func newIdentity() (identity, error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return identity{}, fmt.Errorf("make private key: %w", err)
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "chokepoint"},
		// A node's clock may be anywhere.
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, about, about, k.Public(), k)
	if err != nil {
		return identity{}, fmt.Errorf("make certificate: %w", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		return identity{}, errors.New("encode private key: not in PKCS #8")
	}
	defer clear(private)
	sum := sha256.Sum256(der)
	return identity{
		fingerprint: spellFingerprint(sum[:]),
		certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}, nil
}

func spellFingerprint(sum []byte) string {
	var parts []string
	for _, b := range sum {
		parts = append(parts, fmt.Sprintf("%02X", b))
	}
	return strings.Join(parts, ":")
}

// parseFingerprint refuses what is not one: it becomes a line of the other
// end's configuration.
func parseFingerprint(text string) (string, error) {
	b, err := hex.DecodeString(strings.ReplaceAll(text, ":", ""))
	if err != nil || len(b) != sha256.Size || spellFingerprint(b) != text {
		return "", errors.New("parse fingerprint: want 32 bytes in hexadecimal with colons")
	}
	return text, nil
}

// controlKeySize is what tls-crypt takes: two keys of 64 bytes and two for
// HMAC, of which it uses the first halves.
const controlKeySize = 256

// controlKey spells the key that seals the control channel, from what both
// ends share.
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

// configuration is what openvpn reads from its standard input. The caller
// overwrites it.
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

// clientRoutes tells a server what lies behind its client, in the lines of a
// client's configuration.
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
		fmt.Fprintf(&b, "iroute %s %d.%d.%d.%d\n", p.Addr(), byte(mask>>24), byte(mask>>16), byte(mask>>8), byte(mask))
	}
	return b.String()
}
