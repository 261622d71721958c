//go:build !mips && !mipsle

package traffic

import (
	"net"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/steady"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func TestResponsivenessEveryOpenerAndDirection(t *testing.T) {
	for _, opener := range []string{"near", "far"} {
		for _, direction := range []string{record.Up, record.Down, record.Both} {
			t.Run(opener+" opens "+direction, func(t *testing.T) {
				steady.Run(t, func(t *steady.Trial) {
					near, far := ends(t, loopback4)
					clock := newStopwatch(400 * time.Millisecond)
					load := tcpLoad(2, direction, opener)
					got, err := Responsive{}.Offer(t.Context(), near, far, load, clock)
					if err != nil {
						t.Fatal(err)
					}
					want := 2
					if direction == record.Both {
						want = 4
					}
					if len(got.Flows) != want || got.Engine != "responsiveness" {
						t.Errorf("%d flows of engine %q, want %d of responsiveness", len(got.Flows),
							got.Engine, want)
					}
					for _, f := range got.Flows {
						if f.ReceivedBytes < 1<<20 || f.SentBytes < 1<<20 || f.ReceiverNs <= 0 {
							t.Timedf("flow %d %s: sent %d, received %d", f.Stream, f.Direction, f.SentBytes,
								f.ReceivedBytes)
						}
					}
					checkResponsiveness(t, got.Responsiveness, clock.timeline)
				})
			})
		}
	}
}

func checkResponsiveness(t *steady.Trial, r *record.Responsiveness, w record.Window) {
	t.Helper()
	if r == nil {
		t.Fatal("no request was made")
	}
	// Three quarters of 400 ms, at every 25 ms.
	if len(r.ForeignAt) != 12 || len(r.Connect) != 12 || len(r.Exchange) != 12 ||
		len(r.LoadedAt) != len(r.Loaded) || len(r.Loaded)+int(r.Skipped) < 11 {
		t.Timedf("%d foreign connections, %d handshakes, %d exchanges, %d and %d loaded requests, %d "+
			"skipped; want 12 of each",
			len(r.ForeignAt), len(r.Connect), len(r.Exchange), len(r.LoadedAt), len(r.Loaded), r.Skipped)
		return
	}
	for i, ns := range r.Loaded {
		if ns <= 0 || r.LoadedAt[i] < w.Start || r.LoadedAt[i] > w.End {
			t.Timedf("loaded request %d took %d ns from %d on, want it answered, in %+v", i, ns,
				r.LoadedAt[i], w)
		}
	}
	for i := range r.Connect {
		if r.Connect[i] <= 0 || r.Exchange[i] <= 0 {
			t.Timedf("foreign connection %d: handshake %d ns, exchange %d ns, want both", i, r.Connect[i],
				r.Exchange[i])
		}
	}
}

func TestResponsivenessRefusesWhatItIsNot(t *testing.T) {
	for _, change := range []func(*record.Load){
		func(l *record.Load) { l.Protocol, l.PacketSize = "udp", 100 },
		func(l *record.Load) { l.Verify = true },
		func(l *record.Load) { l.RateBps = 1e6 },
		func(l *record.Load) { l.Streams = 0 },
		func(l *record.Load) { l.Streams = 65 },
	} {
		load := tcpLoad(1, record.Up, "near")
		change(&load)
		if a := (Responsive{}).Check(t.Context(), End{}, End{}, load); a.State != check.No || a.Reason == "" {
			t.Errorf("%+v: got %v, want a no with its reason", load, a)
		}
		if _, err := (Responsive{}).Offer(t.Context(), End{}, End{}, load, newStopwatch(0)); err == nil {
			t.Errorf("%+v was offered", load)
		}
	}
}

// Whoever knows neither tag nor number gets no answer, and harms nobody.
func TestPorchSendsStrangersAway(t *testing.T) {
	q := request{Addr: loopback4, Load: record.Load{Tag: "mine"}}
	p, err := openPorch(t.Context(), q, 0, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer p.end()
	for _, test := range []struct {
		name     string
		says     []byte
		answered bool
	}{
		{"a guest", preamble("mine", 3), true},
		{"another's guest", preamble("yours", 3), false},
		{"a stream", preamble("mine", 2), false},
		{"garbage", make([]byte, preambleSize), false},
	} {
		c, err := net.Dial("tcp", p.door.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(2 * time.Second))
		c.Write(test.says)
		b := make([]byte, 2*welcomeSize)
		n, _ := c.Read(b)
		if got := string(b[:n]) == string(welcome("mine")); got != test.answered || !got && n > 0 {
			t.Errorf("%s: got %d bytes, want an answer: %v", test.name, n, test.answered)
		}
		c.Close()
	}
}

func TestUnsentFollowsTheRate(t *testing.T) {
	for _, test := range []struct {
		bps            int64
		unsent, length int
	}{{0, 4096, 2048}, {1e6, 4096, 2048}, {100e6, 25000, 12500}, {500e6, 125000, 16384},
		{10e9, 262144, 16384}} {
		if unsent, length := unsentFor(test.bps/8/10, 1e8); unsent != test.unsent || length != test.length {
			t.Errorf("%d bit/s: %d bytes unsent in frames of %d, want %d and %d", test.bps, unsent, length,
				test.unsent, test.length)
		}
	}
}

func FuzzReadFrame(f *testing.F) {
	b := make([]byte, frameHeader)
	frame{kind: frameRequest, id: 7}.put(b)
	f.Add(b)
	frame{kind: frameBulk, length: bulkSize}.put(b)
	f.Add(b)
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, ok := readFrame(b)
		if !ok && got != (frame{}) || ok && got.length > bulkSize {
			t.Fatalf("%x: got %+v, %v", b, got, ok)
		}
		if ok {
			again := make([]byte, frameHeader)
			got.put(again)
			if back, _ := readFrame(again); back != got {
				t.Errorf("%+v comes back as %+v", got, back)
			}
		}
	})
}
