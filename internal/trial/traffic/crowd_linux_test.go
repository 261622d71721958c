//go:build !mips && !mipsle

package traffic

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

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

// TestCrowdKeepsNobodyOut: of too many who wait, those from where most come from leave first.
func TestCrowdKeepsNobodyOut(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	w := crowd{most: 3}
	for _, from := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.2", "127.0.0.2", "127.0.0.3",
		"127.0.0.2"} {
		hold(t, from, ln.Addr().(*net.TCPAddr).Port, 1)
		c, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		w.enter(c)
	}
	got := map[string]int{}
	for _, c := range w.conns {
		got[c.RemoteAddr().(*net.TCPAddr).IP.String()]++
	}
	if got["127.0.0.1"] != 1 || got["127.0.0.2"] != 1 || got["127.0.0.3"] != 1 {
		t.Errorf("waiting: got %v, want one from each address", got)
	}
	w.leave(w.conns[1])
	if len(w.conns) != 2 {
		t.Errorf("waiting after one has left: got %d, want 2", len(w.conns))
	}
}

// TestSilentStrangersKeepNobodyOut: connections that say nothing, more than may wait, do not keep a load
// from being met.
func TestSilentStrangersKeepNobodyOut(t *testing.T) {
	q := request{Addr: loopback4, Load: tcpLoad(1, record.Up, "near")}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	met := make(chan error, 1)
	conns, err := acceptFlows(ctx, q, 1, func(port int) error {
		hold(t, "127.0.0.2", port, 3*maxStrangers)
		go func() {
			ours := q
			ours.Peer, ours.Port = loopback4, port
			mine, err := dialFlows(ctx, ours, flowsOf(q.Load))
			for _, c := range mine {
				if c != nil {
					c.Close()
				}
			}
			met <- err
		}()
		return nil
	})
	if err != nil || len(conns) != 1 {
		t.Errorf("flows: got %d, %v, want one", len(conns), err)
	}
	for _, c := range conns {
		c.Close()
	}
	if err := <-met; err != nil {
		t.Errorf("the load's own connection: %v", err)
	}
}

// TestPorchKeepsItsGuests: nor do they keep a guest out.
func TestPorchKeepsItsGuests(t *testing.T) {
	p, err := openPorch(t.Context(), request{Addr: loopback4, Load: record.Load{Tag: "mine"}}, 0, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer p.end()
	hold(t, "127.0.0.2", p.door.Addr().(*net.TCPAddr).Port, 4*mostForeign)
	c, err := net.Dial("tcp", p.door.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(2 * time.Second))
	c.Write(preamble("mine", 3))
	b := make([]byte, welcomeSize)
	if _, err := c.Read(b); err != nil || string(b) != string(welcome("mine")) {
		t.Errorf("a guest: got %q, %v, want to be welcome", b, err)
	}
}
