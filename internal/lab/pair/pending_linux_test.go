package pair

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
)

// flood has unauthenticated clients hold on to all the places that they get, each prefix's and more, from
// as many addresses as take all.
func flood(t *testing.T, h *house) {
	t.Helper()
	for prefix := range maxPending / maxPendingEach {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+prefix))}}
		for range 2 * maxPendingEach {
			c, err := d.Dial("tcp4", h.address)
			if err != nil {
				t.Fatalf("unauthenticated client of prefix %d: %v", prefix, err)
			}

			t.Cleanup(func() { c.Close() })
		}
	}
}

// TestPendingKeepsNobodyOut: unauthenticated clients that hold on to all that they can get are bounded, a
// controller comes in all the same, of another prefix or of theirs, and a run inside has no more to do with
// them.
func TestPendingKeepsNobodyOut(t *testing.T) {
	code := NewCode()
	h := open(t, &Listener{Code: code})
	for _, prefix := range []string{"127.0.0.1", "127.0.0.2"} {
		flood(t, h)
		h.told(t, "refused: too many have proved nothing; another took the place")
		h.mu.Lock()
		h.said = nil
		h.mu.Unlock()
		raw, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(prefix)}}).Dial("tcp4", h.address)
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), proveTime)
		v, err := meet(ctx, raw, h.address, code)
		cancel()
		if err != nil {
			t.Fatalf("a controller of %s: %v", prefix, err)
		}

		says(t, v, "in at once")
		flood(t, h)
		h.told(t, "refused: too many connections that have proved nothing")
		h.Listener.mu.Lock()
		each := map[netip.Prefix]int{}
		for _, g := range h.waiting {
			if each[g.prefix]++; each[g.prefix] > maxPendingEach {
				t.Errorf("unauthenticated clients of %v at once: got %d, want %d at most", g.prefix,
					each[g.prefix],
					maxPendingEach)
			}
		}

		n := len(h.waiting)
		if n > maxPending {
			t.Errorf("unauthenticated clients at once: got %d, want %d at most", n, maxPending)
		}

		h.Listener.mu.Unlock()
		says(t, v, "undisturbed")
		v.Close()
		h.told(t, "the run has ended")
	}
}

// TestFloodKeepsNobodyOut: the same of unauthenticated clients that come again as fast as they can, holding
// on or talking garbage.
func TestFloodKeepsNobodyOut(t *testing.T) {
	code := NewCode()
	h := open(t, &Listener{Code: code})
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer stop()
	for i := range 2 * maxPending / maxPendingEach {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i/2))}}
		clients.Go(func() {
			var last net.Conn // is held on to until the next
			defer func() {
				if last != nil {
					last.Close()
				}
			}()
			for ctx.Err() == nil {
				c, err := d.DialContext(ctx, "tcp4", h.address)
				if err != nil {
					continue // the end, or its ports are used up for the moment
				}

				if i%2 == 0 {
					_, _ = c.Write([]byte("GET / HTTP/1.0\r\n\r\n")) // the listener may be quicker
				}

				if err := c.(*net.TCPConn).SetLinger(0); err != nil {
					t.Error(err)
				}

				if last != nil {
					last.Close()
				}

				last = c
			}
		})
	}

	h.told(t, "refused: too many have proved nothing; another took the place")
	for range 3 {
		v, err := dial(t, h.address, code)
		must(t, err)
		says(t, v, "in, and undisturbed")
		v.Close()
		h.told(t, "the run has ended")
		h.mu.Lock()
		h.said = nil
		h.mu.Unlock()
	}
}

// TestPlaces: whose place is whose.
func TestPlaces(t *testing.T) {
	several := func(n int, address string) (homes []netip.Prefix) {
		for i := range n {
			homes = append(homes, prefixOf(netip.MustParseAddr(fmt.Sprintf(address, i+1))))
		}
		return homes
	}
	full := func(more ...netip.Prefix) []netip.Prefix {
		return append(several(maxPending-len(more), "192.0.2.%d"), more...)
	}
	twice := several(1, "198.51.100.%d")[0]
	for _, c := range []struct {
		name   string
		places []netip.Prefix // taken, in the order of coming
		inside string
		comes  string
		// the place that is given away; -1 = none is, and there is room; -2 = none, and there is none
		leaves int
	}{
		{"room", several(maxPending-1, "192.0.2.%d"), "", "203.0.113.1", -1},
		{"room while a run is inside", several(maxPending-1, "192.0.2.%d"), "somebody", "203.0.113.1", -1},
		{"all of different homes", full(), "", "203.0.113.1", 0},
		{"one prefix has two", full(twice, twice), "", "203.0.113.1", maxPending - 2},
		{"full while a run is inside", full(twice, twice), "somebody", "203.0.113.1", -2},
		{"its share of IPv6, by other addresses", several(maxPendingEach, "2001:db8::%d"), "",
			"2001:db8::ffff:1", 0},
		{"the same while a run is inside", several(maxPendingEach, "2001:db8::%d"), "somebody",
			"2001:db8::ffff:1", -2},
		{"another network of IPv6", several(maxPendingEach, "2001:db8::%d"), "", "2001:db8:0:1::1", -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := &Listener{inside: c.inside}
			left := -1
			for i, prefix := range c.places {
				d.waiting = append(d.waiting, &pending{prefix, func(error) { left = i }})
			}

			g := &pending{prefix: prefixOf(netip.MustParseAddr(c.comes))}
			entered := d.enter(g)
			if entered != (c.leaves != -2) || left != max(c.leaves, -1) {
				t.Errorf("entered: %t, in place %d; want %d", entered, left, c.leaves)
			}

			want := min(len(c.places)+1, maxPending)
			if entered && c.leaves == -1 && len(d.waiting) != want {
				t.Errorf("pending: got %d, want %d", len(d.waiting), want)
			}

			if entered && d.waiting[len(d.waiting)-1] != g {
				t.Error("who came is not the last")
			}
		})
	}
}
