// Package pair connects two machines before their agents talk: by a one-time code that a person carries over,
// an encrypted connection, and both ends' proof that they know the code. It does not know labs and measures
// nothing. No other package uses crypto/tls, which the small agent does not include.
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
	"unicode"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// Inside TLS 1.3, whose certificate is made for the occasion and proves nothing, the controller sends a
// hello: 15 bytes of name, one of version, and its proof of the code. The peer answers with a verdict of one
// byte, and its own proof or, to refuse, a text with a length of two bytes. A proof is the HMAC-SHA256, keyed
// by the code, of the role and of what TLS exports for this connection alone (RFC 8446 §7.5; RFC 9266 uses it
// likewise). So it is useless on another connection, and a man in the middle has no valid proof for either of
// his two connections.
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
	data       role = "data" // owner of the key of a run's data sockets
)

type verdict byte

const (
	accepted verdict = iota
	wrongCode
	busy
	otherVersion
)

// proof returns a role's proof of the code for one connection.
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

// hello is a controller's first message.
type hello struct {
	version byte
	proof   []byte
}

func (h hello) bytes() []byte { return append(append([]byte(magic), h.version), h.proof...) }

var errProtocol = errors.New("does not speak the pair protocol")

// parseHello parses a whole hello.
func parseHello(b []byte) (hello, error) {
	if len(b) != helloSize || !bytes.HasPrefix(b, []byte(magic)) {
		return hello{}, errProtocol
	}
	return hello{b[len(magic)], bytes.Clone(b[len(magic)+1:])}, nil
}

// answer is the peer's answer to it.
type answer struct {
	verdict verdict
	proof   []byte // if it accepts
	reason  string // if it refuses
}

func (a answer) bytes() []byte {
	b := []byte{byte(a.verdict)}
	if a.verdict == accepted {
		return append(b, a.proof...)
	}

	reason := a.reason[:min(len(a.reason), maxReason)]
	return append(binary.BigEndian.AppendUint16(b, uint16(len(reason))), reason...)
}

// readAnswer reads an answer, which is not trusted yet.
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
		a.reason = printable(string(read(n)))
	} else {
		err = errProtocol
	}

	if err != nil {
		return answer{}, err
	}

	return a, nil
}

// printable keeps an unauthenticated client's text from controlling a terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, strings.ToValidUTF8(text, "?"))
}

// Silence bounds how long either end may send nothing before the other considers it dead: an idle end sends
// something regularly, see host.KeepAlive.
const Silence = 45 * time.Second

const unread = 30 * time.Second // how long sent data may wait to be read

// watched makes the kernel detect that the other machine is gone.
func watched(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		// otherwise Silence detects it later
		_ = t.SetKeepAliveConfig(net.KeepAliveConfig{
			Enable:   true,
			Idle:     10 * time.Second,
			Interval: 5 * time.Second,
			Count:    4,
		})
	}
}

// certificate makes a self-signed certificate for one listener: TLS requires one, but the code proves
// identity.
func certificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a key for the connection: %w", err)
	}

	// Always valid: the clocks of two machines need not agree.
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
