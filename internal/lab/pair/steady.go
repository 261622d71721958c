package pair

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// Silence is how long either end may say nothing before the other takes it for dead: whoever has nothing to
// say speaks all the same, see Alive.
const Silence = 45 * time.Second

const unread = 30 * time.Second // how long what was said may wait to be taken

// steady is a connection that ends when the other end is dead, stopped or does not listen.
type steady struct {
	net.Conn
	silence, unread time.Duration
}

func (s steady) Read(b []byte) (int, error) {
	if err := s.SetReadDeadline(time.Now().Add(s.silence)); err != nil {
		return 0, err
	}
	return s.Conn.Read(b)
}

func (s steady) Write(b []byte) (int, error) {
	if err := s.SetWriteDeadline(time.Now().Add(s.unread)); err != nil {
		return 0, err
	}
	return s.Conn.Write(b)
}

// Alive has the agent at the other end answer every now and then, so that neither end falls silent, until
// ctx ends or the agent is gone. Its errors are those of whoever uses the agent next.
func Alive(ctx context.Context, a host.Agent) {
	tick := time.NewTicker(Silence / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if _, _, err := a.Clock(ctx); err != nil {
			return
		}
	}
}

// watched has the kernel find out that the other machine is gone.
func watched(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		// Silence finds it out later
		_ = t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second,
			Interval: 5 * time.Second, Count: 4})
	}
}

// certificate is made for one listener and signed by itself. TLS wants one; who is there is proved by the
// code.
func certificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a key for the connection: %w", err)
	}
	// No time is meant: the clocks of two machines need not agree.
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0),
		NotAfter: time.Unix(1<<33, 0)}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a certificate for the connection: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
