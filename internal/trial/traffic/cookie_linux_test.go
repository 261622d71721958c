package traffic

import (
	"context"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// say sends one hello and returns what comes back within a while.
func say(t *testing.T, c *net.UDPConn, d Datagram) []Datagram {
	t.Helper()
	b := make([]byte, 2000)
	d.Put(b)
	if _, err := c.Write(b[:DatagramHeader]); err != nil {
		t.Fatal(err)
	}

	var back []Datagram
	for {
		c.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		n, err := c.Read(b)
		if err != nil {
			return back
		}

		if n > DatagramHeader {
			t.Errorf("%d bytes drew %d", DatagramHeader, n)
		}

		if d, ok := ReadDatagram(b[:n]); ok {
			back = append(back, d)
		}
	}
}

func dial(t *testing.T, from string, port int) *net.UDPConn {
	t.Helper()
	c, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.ParseIP(from)},
		&net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { c.Close() })
	return c
}

// TestHelloNeedsTheCookie: whoever reads a load's tag off the wire and writes another's address as the source
// draws no more than was sent, and no flow; nor does one with another's cookie, the tag of its data, or an
// address that the request does not name.
func TestHelloNeedsTheCookie(t *testing.T) {
	q := Request{
		Listen: true,
		Addr:   loopback,
		From:   loopback,
		Load:   record.Load{Protocol: "udp", Direction: record.Down, Streams: 1, IP: 4, Tag: "mine"},
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var admitted atomic.Int32
	tried := make(chan struct{})
	h, err := AnswerHellos(ctx, Part{q, func(port int) error {
		go func() {
			defer close(tried)
			tryHellos(t, q, port, &admitted)
		}()
		return nil
	}}, 1, func(int, netip.AddrPort, *net.UDPConn) (*net.UDPConn, error) {
		admitted.Add(1)
		return nil, nil
	})
	<-tried
	if err != nil {
		t.Fatal(err)
	}

	h.Close()
}

func tryHellos(t *testing.T, q Request, port int, admitted *atomic.Int32) {
	t.Helper()
	hello := Datagram{Tag: helloHash(q.Load), Phase: PhaseHello}
	one := dial(t, "127.0.0.1", port)
	other := dial(t, "127.0.0.1", port)
	back := say(t, one, hello)
	if len(back) != 1 || back[0].Phase != PhaseChallenge || back[0].Cookie() == 0 {
		t.Errorf("without a cookie: got %+v, want to be asked for it", back)
		return
	}

	cookie := back[0].Cookie()
	if back = say(t, other, hello.WithCookie(cookie)); len(back) != 1 || back[0].Phase != PhaseChallenge {
		t.Errorf("with another's cookie: got %+v, want to be asked for its own", back)
	}

	data := Datagram{Tag: TagHash(TagData, q.Load.Tag), Phase: PhaseHello}
	if back = say(t, one, data.WithCookie(cookie)); len(back) != 0 {
		t.Errorf("with the tag of data: got %+v, want silence", back)
	}

	if back = say(t, dial(t, "127.0.0.2", port), hello); len(back) != 0 {
		t.Errorf("from elsewhere: got %+v, want silence", back)
	}

	n := admitted.Load()
	if n != 0 {
		t.Errorf("admitted: got %d before any had returned its cookie", n)
	}

	if back = say(t, one, hello.WithCookie(cookie)); len(back) != 1 || back[0].Phase != PhaseWelcome {
		t.Errorf("with its cookie: got %+v, want a welcome", back)
	}
}
