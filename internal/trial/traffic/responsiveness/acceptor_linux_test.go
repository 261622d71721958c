package responsiveness

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// hold opens connections that say nothing, from an address of the loopback device, until the test ends.
func hold(t *testing.T, from string, port, n int) {
	t.Helper()
	for range n {
		c, err := net.DialTCP("tcp", &net.TCPAddr{IP: net.ParseIP(from)},
			&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() { c.Close() })
	}
}

// Whoever knows neither tag nor number gets no answer, and harms nobody.
func TestAcceptorAnswersOnlyTheLoadsClients(t *testing.T) {
	q := traffic.Request{Addr: loopback, Load: record.Load{Tag: "mine"}}
	p, err := answerForeign(t.Context(), q, 0, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	for _, test := range []struct {
		name     string
		says     []byte
		answered bool
	}{
		{"a client", traffic.Preamble("mine", 3), true},
		{"another's client", traffic.Preamble("yours", 3), false},
		{"a stream", traffic.Preamble("mine", 2), false},
		{"garbage", make([]byte, traffic.PreambleSize), false},
	} {
		c, err := net.Dial("tcp", p.Listeners[0].Addr().String())
		if err != nil {
			t.Fatal(err)
		}

		c.SetDeadline(time.Now().Add(2 * time.Second))
		c.Write(test.says)
		b := make([]byte, 2*traffic.WelcomeSize)
		n, _ := c.Read(b)
		got := string(b[:n]) == string(traffic.Welcome("mine"))
		if got != test.answered || !got && n > 0 {
			t.Errorf("%s: got %d bytes, want an answer: %v", test.name, n, test.answered)
		}

		c.Close()
	}
}

// TestAcceptorKeepsItsClients: connections that say nothing keep no client out.
func TestAcceptorKeepsItsClients(t *testing.T) {
	p, err := answerForeign(t.Context(), traffic.Request{Addr: loopback, Load: record.Load{Tag: "mine"}},
		0, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	hold(t, "127.0.0.2", p.Listeners[0].Addr().(*net.TCPAddr).Port, 4*maxForeign)
	c, err := net.Dial("tcp", p.Listeners[0].Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(2 * time.Second))
	c.Write(traffic.Preamble("mine", 3))
	b := make([]byte, traffic.WelcomeSize)
	if _, err := c.Read(b); err != nil || string(b) != string(traffic.Welcome("mine")) {
		t.Errorf("a client: got %q, %v, want to be welcome", b, err)
	}
}
