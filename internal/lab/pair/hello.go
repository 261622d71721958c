// Package pair is how two machines meet before their agents speak: a one-time code that a person carries
// over, an encrypted connection, and the proof of both ends that they know the code. It knows nothing of
// labs and measures nothing. It is the only home of crypto/tls, which the small agent does not carry.
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

// Inside TLS 1.3, whose certificate is made for the occasion and proves nothing, the controller says hello:
// 15 bytes of name, one of version, and its proof of the code. The peer answers with a verdict of one byte,
// and its own proof or, refusing, a text of two bytes length. A proof is HMAC-SHA256 of the role and of
// what TLS exports for this connection alone (RFC 8446 §7.5, RFC 9266 uses it likewise), by the code. So it
// is of no use on another connection, and who stands between two connections has none for either.
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
	data       role = "data" // of whom the key of a run's data sockets is
)

type verdict byte

const (
	accepted verdict = iota
	wrongCode
	busy
	otherVersion
)

// proof returns what a role proves the code by on one connection.
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

// hello holds what a controller says first.
type hello struct {
	version byte
	proof   []byte
}

func (h hello) bytes() []byte { return append(append([]byte(magic), h.version), h.proof...) }

var errProtocol = errors.New("does not speak the pair protocol")

// parseHello reads a whole hello.
func parseHello(b []byte) (hello, error) {
	if len(b) != helloSize || !bytes.HasPrefix(b, []byte(magic)) {
		return hello{}, errProtocol
	}
	return hello{b[len(magic)], bytes.Clone(b[len(magic)+1:])}, nil
}

// answer holds what the peer says to it.
type answer struct {
	verdict verdict
	proof   []byte // of an accepting peer
	reason  string // of a refusing one
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

// printable keeps an unauthenticated client's text from steering a terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, strings.ToValidUTF8(text, "?"))
}

// Silence bounds how long either end may say nothing before the other takes it for dead: whoever has nothing
// to say speaks all the same, see host.KeepAlive.
const Silence = 45 * time.Second

const unread = 30 * time.Second // how long what was said may wait to be taken

// watched has the kernel find out that the other machine is gone.
func watched(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		// Silence finds it out later
		_ = t.SetKeepAliveConfig(net.KeepAliveConfig{
			Enable:   true,
			Idle:     10 * time.Second,
			Interval: 5 * time.Second,
			Count:    4,
		})
	}
}

// certificate is made for one listener and signed by itself: TLS wants one, but the code proves who is there.
func certificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a key for the connection: %w", err)
	}

	// No time is meant: the clocks of two machines need not agree.
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
