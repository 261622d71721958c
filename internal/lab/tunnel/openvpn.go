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

// These are the supported ciphers of OpenVPN's data channel, by their names in OpenVPN.
const (
	cipherAES256GCM = "AES-256-GCM"
	cipherChaCha20  = "CHACHA20-POLY1305"
)

const nameOpenVPN = "openvpn" // name prefix of these kinds of tunnels

// openVPNTime is the time limit for a connection. It suffices for a TLS handshake on an emulated machine.
const openVPNTime = 20 * time.Second

// openVPNKinds returns a kind of OpenVPN 2.6 for each transport and cipher. They use the installed program,
// which runs in userspace because data-channel offload is disabled. The far end is the server, and the near
// end is its client. OpenVPN neither fragments packets nor clamps the MSS (mssfix 0). If the inner MTU is
// large, the outer packets are therefore IP fragments.
func openVPNKinds() []Tunnel {
	return []Tunnel{openVPNKind(nameOpenVPN, cipherAES256GCM, false),
		openVPNKind(nameOpenVPN+"-chacha20-poly1305", cipherChaCha20, false),
		openVPNKind(nameOpenVPN+"-tcp", cipherAES256GCM, true),
		openVPNKind(nameOpenVPN+"-tcp-chacha20-poly1305", cipherChaCha20, true)}
}

// openVPNKind returns a kind of OpenVPN tunnel that has a server at the far end and a client at the near end.
// Each end generates a key and a self-signed certificate, and receives the fingerprint of the other end's
// certificate. The shared secret encrypts the control channel (tls-crypt).
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
	tcp    bool // whether the transport is TCP instead of UDP
}

func (k openVPN) Name() string { return k.name }

// identity holds the certificate and private key of an end in the format that OpenVPN reads.
type identity struct {
	fingerprint string // SHA-256 of the certificate; the other end trusts only this certificate
	certificate []byte // in PEM format
	key         []byte // in PEM format; overwritten by clear
}

// clear overwrites the private key.
func (i identity) clear() { clear(i.key) }

// newIdentity generates a key and a self-signed certificate. The other end verifies only the fingerprint of
// the certificate.
func newIdentity() (identity, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return identity{}, fmt.Errorf("make private key: %w", err)
	}
	defer clear(private)
	template := x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "chokepoint"},
		NotBefore:    time.Unix(0, 0), // valid even if the clock of the node is wrong
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

// parseFingerprint returns text if it is a valid fingerprint. The check is needed because text becomes a part
// of the configuration of the other end.
func parseFingerprint(text string) (string, error) {
	b, err := hex.DecodeString(strings.ReplaceAll(text, ":", ""))
	if err != nil || len(b) != sha256.Size || spellFingerprint(b) != text {
		return "", errors.New("parse fingerprint: want 32 bytes in hexadecimal with colons")
	}
	return text, nil
}

// controlKeySize is the size of a tls-crypt key in bytes. The key consists of two cipher keys and two HMAC
// keys of 64 bytes each. OpenVPN uses only the first half of each.
const controlKeySize = 256

// controlKey returns the key of the control channel in OpenVPN's format. The key is derived from the shared
// secret.
func (k openVPN) controlKey(secret []byte) ([]byte, error) {
	raw, err := hkdf.Key(sha256.New, secret, nil, "chokepoint "+k.name+" control channel", controlKeySize)
	if err != nil {
		return nil, fmt.Errorf("derive key of %s: %w", k.name, err)
	}
	defer clear(raw)
	b := make([]byte, 0, 2*controlKeySize+128) // b must not grow, because the old copy would remain in memory
	b = append(b, "-----BEGIN OpenVPN Static key V1-----\n"...)
	for i := 0; i < len(raw); i += 16 {
		b = append(hex.AppendEncode(b, raw[i:i+16]), '\n')
	}

	return append(b, "-----END OpenVPN Static key V1-----\n"...), nil
}

const configSize = 4096 // maximum size in bytes, which is the capacity of the smallest pipe

// configuration returns the configuration that openvpn reads from standard input. The caller must overwrite
// it after use.
func (k openVPN) configuration(r request, c connect, me identity, control []byte) []byte {
	b := make([]byte, 0, configSize)
	line := func(format string, args ...any) { b = append(fmt.Appendf(b, format, args...), '\n') }
	line("dev %s\ndev-type tun\nproto %s", r.Device, k.protocol(r))
	if r.Near {
		line("client\nremote %s %d\nconnect-retry 1 1", c.Endpoint.Addr(), c.Endpoint.Port())
	} else {
		line("mode server\ntls-server\ndh none\ntopology subnet")
		line("management-client-auth") // lets us send the routes of a client without a file
		line("auth-user-pass-optional")
	}

	if r.Near && k.tcp {
		line("nobind")
	} else {
		line("local %s\nlport %d", r.Outer, r.Port)
	}

	line("peer-fingerprint %s\ndata-ciphers %s\ndisable-dco\ntun-mtu %d", c.Public, k.cipher, r.MTU)
	line("mssfix 0")                      // "fragment 0" is the default, but OpenVPN 2.6 rejects it
	line("ifconfig-noexec\nroute-noexec") // we set addresses and routes ourselves
	line("ping-restart 0")                // the tunnel may be idle while another tunnel is measured
	line("management %s unix", managementPath)
	line("management-client") // makes openvpn exit when we disconnect
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

// clientRoutes returns the networks behind the client as iroute lines for the server.
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
