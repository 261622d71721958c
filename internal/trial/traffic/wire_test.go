package traffic

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func TestFlowsOf(t *testing.T) {
	got := FlowsOf(record.Load{Direction: record.Both, Streams: 2})
	want := []FlowKey{{1, record.Up}, {2, record.Up}, {1, record.Down}, {2, record.Down}}
	diff := cmp.Diff(want, got)
	if diff != "" {
		t.Errorf("flows differ (-want +got):\n%s", diff)
	}

	if !want[0].Sends("near") || want[0].Sends("far") || want[2].Sends("near") || !want[2].Sends("far") {
		t.Error("up is sent by near, down by far")
	}
}

func TestPreambleIsOfOneTrial(t *testing.T) {
	if i, ok := ReadPreamble(Preamble("a", 3), Preamble("a", 0), 4); !ok || i != 3 {
		t.Errorf("own preamble: got %d, %v", i, ok)
	}

	for name, b := range map[string][]byte{
		"another tag":   Preamble("b", 3),
		"too many":      Preamble("a", 4),
		"cut off":       Preamble("a", 3)[:19],
		"somebody else": []byte("GET / HTTP/1.1\r\n\r\n  "),
	} {
		if _, ok := ReadPreamble(b, Preamble("a", 0), 4); ok {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzDatagram(f *testing.F) {
	f.Add([]byte("0123456789abcdef"))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, ok := ReadDatagram(b)
		if !ok {
			if d != (Datagram{}) {
				t.Errorf("refused, yet %+v", d)
			}
			return
		}

		again := make([]byte, DatagramHeader)
		d.Put(again)
		back, _ := ReadDatagram(again)
		if back != d {
			t.Errorf("got %+v after a round trip, want %+v", back, d)
		}
	})
}

func FuzzPreamble(f *testing.F) {
	f.Add(Preamble("tag", 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		if i, ok := ReadPreamble(b, Preamble("tag", 0), 2); ok && (i < 0 || i > 1) {
			t.Errorf("flow %d of 2 accepted", i)
		}
	})
}

func TestPace(t *testing.T) {
	p := NewPace(8*1000*100, 100) // 1000 packets per second
	p.Begin(0)
	sent := int64(0)
	now := int64(0)
	for now < 1e9 {
		n, wake := p.Due(now)
		if n == 0 {
			if wake <= now {
				t.Fatalf("at %d: asked to wake at %d", now, wake)
			}

			now = wake
			continue
		}

		p.Took(n)
		sent += int64(n)
	}

	if sent != 999 && sent != 1000 {
		t.Errorf("sent %d packets in a second, want 1000", sent)
	}

	// A stall of 100 ms is made good for MaxDebt only; the rest is unsent.
	n, total := 1, 0
	for n > 0 {
		n, _ = p.Due(now + 1e8)
		p.Took(n)
		total += n
	}

	if total != 10 {
		t.Errorf("sent %d packets after a stall, want 10", total)
	}

	got := p.Unsent(sent+10, 1.1e9)
	if got < 89 || got > 91 {
		t.Errorf("unsent %d, want 90", got)
	}

	flat := NewPace(0, 100)
	if flat.Unsent(3, 1e9) != 0 {
		t.Error("flat out owes nothing")
	}
}

// TestCountlessStreams: what is asked for is bounded before it takes memory.
func TestCountlessStreams(t *testing.T) {
	l := record.Load{Protocol: "udp", Direction: record.Both, Streams: math.MaxInt, IP: 4, PacketSize: 100}
	a := CheckLoad(l)
	if a.State != check.No {
		t.Errorf("got %+v, want no", a)
	}
}
