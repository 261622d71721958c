// Package pair establishes an authenticated and encrypted connection between two machines, over which their
// agents then communicate. Both ends prove that they know a one-time pairing code, which a person takes from
// one machine to the other. No other package imports crypto/tls, so the small agent does not include it.
package pair

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// The controller opens a TLS 1.3 connection, whose self-signed certificate authenticates nothing. It sends a
// hello, which consists of a name (15 bytes), a version (1 byte), and its proof of the pairing code. The peer
// replies with a verdict (1 byte). If the peer accepts, its own proof follows; if it refuses, a reason with a
// 2-byte length follows. A proof is the HMAC-SHA256, keyed with the pairing code, of the sender's role and of
// keying material that TLS exports for this connection only (RFC 8446 §7.5; RFC 9266 uses keying material in
// the same way). A proof is therefore invalid on any other connection, and a man in the middle cannot forward
// it from one of its two connections to the other.
const (
	magic     = "chokepoint-pair"
	version   = 2
	proofSize = sha256.Size
	helloSize = len(magic) + 1 + proofSize
	maxReason = 512
	binding   = "EXPERIMENTAL chokepoint pair"
)

type role string

const (
	controller role = "controller"
	peer       role = "peer"
	data       role = "data" // used to derive the key for the data sockets of a run
)

type verdict byte

const (
	accepted verdict = iota
	wrongCode
	busy
	otherVersion
)

// proof returns the proof of the pairing code for a connection and role.
func proof(code host.Secret, c *tls.Conn, r role) ([]byte, error) {
	state := c.ConnectionState()
	bound, err := state.ExportKeyingMaterial(binding, nil, sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("bind the code to the connection: %w", err)
	}

	var sum []byte
	err = code.Use(func(key []byte) error {
		m := hmac.New(sha256.New, key)
		m.Write([]byte("chokepoint pair " + string(r) + "\x00"))
		m.Write(bound)
		sum = m.Sum(nil)
		return nil
	})
	return sum, err
}

// hello is the first message of a controller.
type hello struct {
	version byte
	proof   []byte
}

func (h hello) bytes() []byte { return append(append([]byte(magic), h.version), h.proof...) }

var errProtocol = errors.New("does not speak the pair protocol")

// parseHello parses a complete hello.
func parseHello(b []byte) (hello, error) {
	if len(b) != helloSize || !bytes.HasPrefix(b, []byte(magic)) {
		return hello{}, errProtocol
	}
	return hello{b[len(magic)], bytes.Clone(b[len(magic)+1:])}, nil
}

// answer is the reply of a peer to a hello.
type answer struct {
	verdict verdict
	proof   []byte // set if the peer accepts
	reason  string // set if the peer refuses
}

func (a answer) bytes() []byte {
	b := []byte{byte(a.verdict)}
	if a.verdict == accepted {
		return append(b, a.proof...)
	}

	reason := a.reason[:min(len(a.reason), maxReason)]
	return append(binary.BigEndian.AppendUint16(b, uint16(len(reason))), reason...)
}

// readAnswer reads an answer from a peer that has not been authenticated yet.
func readAnswer(r io.Reader) (answer, error) {
	var err error
	read := func(n int) []byte {
		b := make([]byte, n)
		if err == nil {
			_, err = io.ReadFull(r, b)
		}
		return b
	}
	a := answer{verdict: verdict(read(1)[0])}
	if a.verdict == accepted {
		a.proof = read(proofSize)
	} else if n := int(binary.BigEndian.Uint16(read(2))); n <= maxReason {
		a.reason = strings.Join(strings.Fields(check.Plain(string(read(n)))), " ")
	} else {
		err = errProtocol
	}

	if err != nil {
		return answer{}, err
	}

	return a, nil
}

// Silence is the time without received data after which each end considers the other end dead. An idle end
// must send something regularly; see host.KeepAlive.
const Silence = 45 * time.Second

const unread = 30 * time.Second // time limit for a write, which blocks if the other end does not read

// watched enables TCP keep-alives, with which the kernel detects that the other machine is gone.
func watched(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		// Ignore errors, because each end also notices a dead machine after Silence.
		_ = t.SetKeepAliveConfig(net.KeepAliveConfig{
			Enable:   true,
			Idle:     10 * time.Second,
			Interval: 5 * time.Second,
			Count:    4,
		})
	}
}

// certificate returns a self-signed certificate for one listener. TLS requires a certificate, but only the
// pairing code authenticates the ends.
func certificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a key for the connection: %w", err)
	}

	// The certificate is always valid, because the clocks of the two machines may differ.
	template := x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Unix(0, 0),
		NotAfter:     time.Unix(1<<33, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a certificate for the connection: %w", err)
	}

	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
