package tunnel

import (
	"crypto/ed25519"
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
	"net"
	"net/netip"
	"strings"
	"time"
)

// Ciphers of OpenVPN's data channel, by its own names.
const (
	cipherAES256GCM = "AES-256-GCM"
	cipherChaCha20  = "CHACHA20-POLY1305"
)

const nameOpenVPN = "openvpn" // prefix of the kinds' names

// openVPNTime bounds how long a started end may take to connect: a TLS handshake on an emulated machine.
const openVPNTime = 20 * time.Second

// OpenVPN is OpenVPN 2.6 over UDP with AES-256-GCM, by the installed program in userspace, with its
// data-channel offload off. The far end is the server, the near end its client. OpenVPN itself neither
// fragments nor clamps (mssfix 0, no fragment): with a large inner MTU the outer packets are IP fragments.
func OpenVPN() Tunnel { return openVPNKind(nameOpenVPN, cipherAES256GCM, false) }

// openVPNKinds lists OpenVPN over each transport, with each cipher.
func openVPNKinds() []Tunnel {
	return []Tunnel{OpenVPN(), openVPNKind(nameOpenVPN+"-chacha20-poly1305", cipherChaCha20, false),
		openVPNKind(nameOpenVPN+"-tcp", cipherAES256GCM, true),
		openVPNKind(nameOpenVPN+"-tcp-chacha20-poly1305", cipherChaCha20, true)}
}

// openVPNKind starts a server at the far end and a client at the near one. Each makes a key and a
// certificate, whose fingerprint the other end receives; the secret that both receive seals the control
// channel (tls-crypt).
func openVPNKind(name, cipher string, tcp bool) Tunnel {
	return kind{openVPN{name, cipher, tcp}, traits{
		fitted:      true,
		serverFirst: true,
		connectTime: acceptTime + openVPNTime + answerTime,
		remark:      "in userspace: data-channel offload is switched off",
	}}
}

type openVPN struct {
	name   string
	cipher string
	tcp    bool // outside
}

func (k openVPN) Name() string { return k.name }

// identity is an end's certificate with its private key, as OpenVPN reads them.
type identity struct {
	fingerprint string // SHA-256 of the certificate, which the other end trusts
	certificate []byte // PEM
	key         []byte // PEM; overwritten by clear
}

// clear overwrites the private key.
func (i identity) clear() { clear(i.key) }

// newIdentity makes a key and a self-signed certificate, identified only by its fingerprint.
func newIdentity() (identity, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return identity{}, fmt.Errorf("make private key: %w", err)
	}
	defer clear(private)
	template := x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "chokepoint"},
		NotBefore:    time.Unix(0, 0), // a node's clock may be arbitrarily wrong
		NotAfter:     time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
	}
	certificate, err := x509.CreateCertificate(rand.Reader, &template, &template, public, private)
	if err != nil {
		return identity{}, fmt.Errorf("make certificate: %w", err)
	}

	packed, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return identity{}, fmt.Errorf("encode private key: %w", err)
	}
	defer clear(packed)
	sum := sha256.Sum256(certificate)
	return identity{
		fingerprint: spellFingerprint(sum[:]),
		certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
		key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: packed}),
	}, nil
}

func spellFingerprint(sum []byte) string {
	return strings.ReplaceAll(fmt.Sprintf("% X", sum), " ", ":")
}

// parseFingerprint refuses anything else, since it becomes a line of the other end's configuration.
func parseFingerprint(text string) (string, error) {
	b, err := hex.DecodeString(strings.ReplaceAll(text, ":", ""))
	if err != nil || len(b) != sha256.Size || spellFingerprint(b) != text {
		return "", errors.New("parse fingerprint: want 32 bytes in hexadecimal with colons")
	}
	return text, nil
}

// controlKeySize is the size of a tls-crypt key: two keys of 64 bytes, two for HMAC; OpenVPN uses their first
// halves.
const controlKeySize = 256

// controlKey formats the key that seals the control channel, derived from the shared secret.
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

const configSize = 4096 // maximum size of a configuration: the capacity of the smallest pipe

// configuration returns openvpn's standard input. The caller overwrites it.
func (k openVPN) configuration(r request, c connect, me identity, control []byte) []byte {
	b := make([]byte, 0, configSize)
	line := func(format string, args ...any) { b = append(fmt.Appendf(b, format, args...), '\n') }
	line("dev %s\ndev-type tun\nproto %s", r.Device, k.protocol(r))
	if r.Near {
		line("client\nremote %s %d\nconnect-retry 1 1", c.Endpoint.Addr(), c.Endpoint.Port())
	} else {
		line("mode server\ntls-server\ndh none\ntopology subnet")
		line("management-client-auth") // which gives a client its routes without a file
		line("auth-user-pass-optional")
	}

	if r.Near && k.tcp {
		line("nobind")
	} else {
		line("local %s\nlport %d", r.Outer, r.Port)
	}

	line("peer-fingerprint %s\ndata-ciphers %s\ndisable-dco\ntun-mtu %d", c.Public, k.cipher, r.MTU)
	line("mssfix 0")                      // and no fragment: 2.6 rejects "fragment 0"
	line("ifconfig-noexec\nroute-noexec") // we set addresses and routes
	line("ping-restart 0")                // a tunnel may be idle while others are measured
	line("management %s unix", managementPath)
	line("management-client") // the program ends when we hang up or die
	line("management-hold\nverb 3\nsuppress-timestamps")
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
	version := map[bool]string{false: "4", true: "6"}[r.Outer.Is6()]
	switch {
	case !k.tcp:
		return "udp" + version
	case r.Near:
		return "tcp" + version + "-client"
	}
	return "tcp" + version + "-server"
}

// clientRoutes lists for a server the networks behind its client, in the lines of a client's configuration.
func clientRoutes(allowed []netip.Prefix) string {
	var b strings.Builder
	for _, p := range allowed {
		p = p.Masked()
		if p.Addr().Is6() {
			fmt.Fprintf(&b, "iroute-ipv6 %s\n", p)
			continue
		}

		fmt.Fprintf(&b, "iroute %s %s\n", p.Addr(), net.IP(net.CIDRMask(p.Bits(), 32)))
	}
	return b.String()
}
