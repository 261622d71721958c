package isp

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
)

var (
	here  = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	there = net.HardwareAddr{2, 0, 0, 0, 0, 2}
	all   = net.HardwareAddr{255, 255, 255, 255, 255, 255}
)

func newConcentrator(most int) *concentrator {
	return &concentrator{mac: here, key: []byte("key"), most: most, sessions: map[uint16]*subscriber{}}
}

// begin is a subscriber's discovery (RFC 2516 §5) up to its session.
func begin(t *testing.T, c *concentrator, mac net.HardwareAddr, more ...tag) (*subscriber, discovery) {
	t.Helper()
	ask := append([]tag{{tagServiceName, nil}, {tagHostUniq, []byte("7")}}, more...)
	offer, _, _ := c.hear(discovery{to: all, from: mac, code: codePADI, tags: ask}.frame())
	o, err := parseDiscovery(offer)
	if err != nil || o.code != codePADO || !bytes.Equal(o.to, mac) {
		t.Fatalf("offer %x: %v", offer, err)
	}

	v, _ := o.find(tagHostUniq)
	if string(v) != "7" {
		t.Errorf("Host-Uniq: got %q, want what was sent", v)
	}

	cookie, _ := o.find(tagACCookie)
	said, begins, _ := c.hear(discovery{
		to:   here,
		from: mac,
		code: codePADR,
		tags: append(ask, tag{tagACCookie, cookie}),
	}.frame())
	s, err := parseDiscovery(said)
	if err != nil || begins == nil || s.code != codePADS || s.session != begins.id || s.session == 0 {
		t.Fatalf("session %x, %+v: %v", said, begins, err)
	}

	return begins, s
}

func TestDiscovery(t *testing.T) {
	c := newConcentrator(1500)
	one, _ := begin(t, c, there)
	if one.payload != 1492 {
		t.Errorf("payload %d, want 1492", one.payload)
	}

	max := binary.BigEndian.AppendUint16(nil, 1500)
	other, confirmed := begin(t, c, net.HardwareAddr{2, 0, 0, 0, 0, 3}, tag{tagMaxPayload, max})
	v, _ := confirmed.find(tagMaxPayload)
	if other.payload != 1500 || !bytes.Equal(v, max) || other.id == one.id {
		t.Errorf("RFC 4638: got %+v and %x, want a payload of 1500", other, v)
	}

	narrow, _ := begin(t, newConcentrator(1492), there, tag{tagMaxPayload, max})
	if narrow.payload != 1492 {
		t.Errorf("on a link of 1500: payload %d, want 1492", narrow.payload)
	}

	end := discovery{to: here, from: all, code: codePADT, session: one.id}
	end.from = net.HardwareAddr{2, 9, 9, 9, 9, 9}
	if _, _, ends := c.hear(end.frame()); ends != nil {
		t.Error("another ended another's session")
	}

	anew := discovery{to: here, from: there, code: codePADR, tags: []tag{{tagACCookie, c.cookie(there)}}}
	if a, begins, ends := c.hear(anew.frame()); a != nil || begins != nil || ends != one {
		t.Errorf("who begins anew: got %x, %+v and the end of %+v, want that of the old session", a, begins,
			ends)
	}

	if p, err := parseDiscovery(c.gone(one)); err != nil || p.code != codePADT || p.session != one.id {
		t.Errorf("the end is told by %+v, %v", p, err)
	}

	again, _ := begin(t, c, there)
	if len(c.sessions) != 2 || again.id != one.id {
		t.Errorf("%d sessions, want 2, and the old number", len(c.sessions))
	}

	end.from = there
	end.session = again.id
	if _, _, ends := c.hear(end.frame()); ends != again {
		t.Error("its own end is not taken")
	}
}

// TestNobodyTakesASessionUnheard: whoever does not hear what is sent to its address gets none, and all
// together no more than there are.
func TestNobodyTakesASessionUnheard(t *testing.T) {
	c := newConcentrator(1492)
	blind := discovery{
		to:   here,
		from: there,
		code: codePADR,
		tags: []tag{{tagServiceName, nil},
			{tagACCookie, make([]byte, 16)}},
	}
	if a, begins, _ := c.hear(blind.frame()); a != nil || begins != nil {
		t.Error("a session without the cookie")
	}

	for i := range maxSubscribers {
		begin(t, c, net.HardwareAddr{2, 0, 0, 0, 1, byte(i)})
	}

	blind.tags[1].value = c.cookie(there)
	if _, begins, _ := c.hear(blind.frame()); begins != nil {
		t.Errorf("more than %d sessions", maxSubscribers)
	}
}

func FuzzDiscovery(f *testing.F) {
	f.Add(discovery{to: here, from: there, code: codePADI, tags: []tag{{tagServiceName, nil}}}.frame())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, frame []byte) {
		d, err := parseDiscovery(frame)
		if err == nil {
			again, err := parseDiscovery(d.frame())
			if err != nil || again.code != d.code || len(again.tags) != len(d.tags) {
				t.Errorf("%x: made again it is %+v, %v, was %+v", frame, again, err, d)
			}
		}

		newConcentrator(1500).hear(frame)
	})
}

func TestNth(t *testing.T) {
	for _, tt := range []struct {
		network string
		n       int
		want    string
	}{
		{"198.18.2.2/24", 1, "198.18.2.1"}, {"198.18.2.1/24", 1, "198.18.2.2"},
		{"198.18.2.2/24", 2, "198.18.2.3"}, {"198.18.2.1/30", 1, "198.18.2.2"}, {"198.18.2.1/30", 2, ""},
		{"2001:2:0:2::2/64", 1, "2001:2:0:2::1"},
	} {
		got, ok := nth(netip.MustParsePrefix(tt.network), tt.n)
		if ok != (tt.want != "") || ok && got.String() != tt.want {
			t.Errorf("%d of %s: got %s, want %q", tt.n, tt.network, got, tt.want)
		}
	}
}
