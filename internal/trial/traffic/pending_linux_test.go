package traffic

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/record"
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

// TestPendingConnsKeepNobodyOut: of too many who wait, those from where most come from leave first.
func TestPendingConnsKeepNobodyOut(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	w := pendingConns{most: 3}
	for _, from := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.2", "127.0.0.2", "127.0.0.3",
		"127.0.0.2"} {
		hold(t, from, ln.Addr().(*net.TCPAddr).Port, 1)
		c, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		w.add(c)
	}

	got := map[string]int{}
	for _, c := range w.conns {
		got[c.RemoteAddr().(*net.TCPAddr).IP.String()]++
	}

	if got["127.0.0.1"] != 1 || got["127.0.0.2"] != 1 || got["127.0.0.3"] != 1 {
		t.Errorf("waiting: got %v, want one from each address", got)
	}

	w.remove(w.conns[1])
	if len(w.conns) != 2 {
		t.Errorf("waiting after one has left: got %d, want 2", len(w.conns))
	}
}

// TestSilentConnectionsKeepNobodyOut: connections that say nothing, more than may wait, do not keep a load
// from being met.
func TestSilentConnectionsKeepNobodyOut(t *testing.T) {
	q := Request{
		Addr: loopback,
		Load: record.Load{
			Protocol:  "tcp",
			Direction: record.Up,
			Streams:   1,
			IP:        4,
			Tag:       "mine",
		},
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	met := make(chan error, 1)
	accepting := q
	accepting.Listen = true
	fds, _, err := ConnectFlows(ctx, Part{accepting, func(port int) error {
		hold(t, "127.0.0.2", port, 3*MaxPending)
		go func() {
			ours := q
			ours.Peer, ours.Port = loopback, port
			mine, _, err := ConnectFlows(ctx, Part{Request: ours}, FlowsOf(q.Load))
			for _, fd := range mine {
				unix.Close(fd)
			}

			met <- err
		}()
		return nil
	}}, FlowsOf(q.Load))
	if err != nil || len(fds) != 1 {
		t.Errorf("flows: got %d, %v, want one", len(fds), err)
	}

	for _, fd := range fds {
		unix.Close(fd)
	}

	if err := <-met; err != nil {
		t.Errorf("the load's own connection: %v", err)
	}
}
