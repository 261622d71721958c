package traffic_test

import (
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/steady"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/responsiveness"
)

func TestResponsivenessEveryOpenerAndDirection(t *testing.T) {
	eachWay(t, func(t *testing.T, opener, direction string) {
		steady.Run(t, func(t *steady.Trial) {
			near, far := ends(t, loopback4)
			clock := newStopwatch(400 * time.Millisecond)
			load := tcpLoad(2, direction, opener)
			got := carried(t, responsiveness.Engine{}, near, far, load, clock)
			want := len(traffic.FlowsOf(load))
			if len(got.Flows) != want || got.Engine != "responsiveness" {
				t.Errorf("%d flows of engine %q, want %d of responsiveness", len(got.Flows), got.Engine, want)
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
		a := (responsiveness.Engine{}).Check(t.Context(), traffic.End{}, traffic.End{},
			load)
		if a.State != check.No || a.Reason == "" {
			t.Errorf("%+v: got %v, want a no with its reason", load, a)
		}

		if _, err := (responsiveness.Engine{}).Offer(t.Context(), traffic.End{}, traffic.End{}, load,
			newStopwatch(0)); err == nil {
			t.Errorf("%+v was offered", load)
		}
	}
}
