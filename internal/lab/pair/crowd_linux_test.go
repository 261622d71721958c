package pair

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
)

// crowd has strangers hold on to all the places that they get, each home's and more, from as many addresses
// as take all.
func crowd(t *testing.T, h *house) {
	t.Helper()
	for home := range maxGuests / maxGuestsEach {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+home))}}
		for range 2 * maxGuestsEach {
			c, err := d.Dial("tcp4", h.address)
			if err != nil {
				t.Fatalf("stranger of home %d: %v", home, err)
			}
			t.Cleanup(func() { c.Close() })
		}
	}
}

// TestCrowdKeepsNobodyOut: strangers that hold on to all that they can get are bounded, a controller comes
// in all the same, of another home or of theirs, and a run inside has no more to do with them.
func TestCrowdKeepsNobodyOut(t *testing.T) {
	code := NewCode()
	h := open(t, &Door{Code: code})
	for _, home := range []string{"127.0.0.1", "127.0.0.2"} {
		crowd(t, h)
		h.told(t, "refused: too many have proved nothing; made room for another")
		h.mu.Lock()
		h.said = nil
		h.mu.Unlock()
		raw, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(home)}}).Dial("tcp4", h.address)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), proveTime)
		v, err := meet(ctx, raw, h.address, code)
		cancel()
		if err != nil {
			t.Fatalf("a controller of %s: %v", home, err)
		}
		says(t, v, "in at once")
		crowd(t, h)
		h.told(t, "refused: too many connections that have proved nothing")
		h.Door.mu.Lock()
		each := map[netip.Prefix]int{}
		for _, g := range h.guests {
			if each[g.home]++; each[g.home] > maxGuestsEach {
				t.Errorf("strangers of %v at once: got %d, want %d at most", g.home, each[g.home],
					maxGuestsEach)
			}
		}
		if n := len(h.guests); n > maxGuests {
			t.Errorf("strangers at once: got %d, want %d at most", n, maxGuests)
		}
		h.Door.mu.Unlock()
		says(t, v, "undisturbed")
		v.Close()
		h.told(t, "the run has ended")
	}
}

// TestFloodKeepsNobodyOut: the same of strangers that come again as fast as they can, holding on or talking
// garbage.
func TestFloodKeepsNobodyOut(t *testing.T) {
	code := NewCode()
	h := open(t, &Door{Code: code})
	ctx, stop := context.WithCancel(t.Context())
	var strangers sync.WaitGroup
	defer strangers.Wait()
	defer stop()
	for i := range 2 * maxGuests / maxGuestsEach {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i/2))}}
		strangers.Go(func() {
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
					_, _ = c.Write([]byte("GET / HTTP/1.0\r\n\r\n")) // the door may be quicker
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
	h.told(t, "refused: too many have proved nothing; made room for another")
	for range 3 {
		v, err := dial(t, h.address, code)
		if err != nil {
			t.Fatal(err)
		}
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
			homes = append(homes, homeOf(netip.MustParseAddr(fmt.Sprintf(address, i+1))))
		}
		return homes
	}
	full := func(more ...netip.Prefix) []netip.Prefix {
		return append(several(maxGuests-len(more), "192.0.2.%d"), more...)
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
		{"room", several(maxGuests-1, "192.0.2.%d"), "", "203.0.113.1", -1},
		{"room while a run is inside", several(maxGuests-1, "192.0.2.%d"), "somebody", "203.0.113.1", -1},
		{"all of different homes", full(), "", "203.0.113.1", 0},
		{"one home has two", full(twice, twice), "", "203.0.113.1", maxGuests - 2},
		{"full while a run is inside", full(twice, twice), "somebody", "203.0.113.1", -2},
		{"its share of IPv6, by other addresses", several(maxGuestsEach, "2001:db8::%d"), "",
			"2001:db8::ffff:1", 0},
		{"the same while a run is inside", several(maxGuestsEach, "2001:db8::%d"), "somebody",
			"2001:db8::ffff:1", -2},
		{"another network of IPv6", several(maxGuestsEach, "2001:db8::%d"), "", "2001:db8:0:1::1", -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := &Door{inside: c.inside}
			left := -1
			for i, home := range c.places {
				d.guests = append(d.guests, &guest{home, func(error) { left = i }})
			}
			g := &guest{home: homeOf(netip.MustParseAddr(c.comes))}
			entered := d.enter(g)
			if entered != (c.leaves != -2) || left != max(c.leaves, -1) {
				t.Errorf("entered: %t, in place %d; want %d", entered, left, c.leaves)
			}
			if want := min(len(c.places)+1, maxGuests); entered && c.leaves == -1 && len(d.guests) != want {
				t.Errorf("guests: got %d, want %d", len(d.guests), want)
			}
			if entered && d.guests[len(d.guests)-1] != g {
				t.Error("who came is not the last")
			}
		})
	}
}
