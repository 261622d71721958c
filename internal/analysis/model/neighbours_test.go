package model

import (
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
)

// TestOwnNeighbours: what lies between a device's own results comes before what other devices reach, which is
// marked.
func TestOwnNeighbours(t *testing.T) {
	c := published(t)
	tests := []struct {
		name  string
		q     catalogue.Result
		model string
		want  float64 // Mbit/s
	}{
		{"between two MTUs", catalogue.Result{MTU: 1392, Streams: 4}, ByNeighbours, 590},
		{"of any number of streams", catalogue.Result{MTU: 1392}, ByNeighbours, 590},
		{"between two numbers of streams", catalogue.Result{MTU: 1420, Streams: 3}, ByNeighbours, 589},
		{"between both", catalogue.Result{MTU: 1392, Streams: 3}, ByNeighbours, 570},
		{"by one stream, of an MTU for four", catalogue.Result{MTU: 1400, Streams: 1}, ByNeighbours, 478},
		{"above the largest MTU", catalogue.Result{MTU: 1440, Streams: 4}, ByNearest, 619},
		{"below the smallest MTU", catalogue.Result{MTU: 1200, Streams: 4}, ByNearest, 486},
		{"beyond the most streams", catalogue.Result{MTU: 1420, Streams: 16}, ByStreams, 598},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.q.Device = "OpenWrt One"
			tt.q.Tunnel = "wireguard"
			tt.q.Protocol = "tcp"
			p := Predict(c, c.Results, tt.q, nil)
			if len(p.Estimates) == 0 || p.Estimates[0].Model != tt.model {
				t.Fatalf("got %+v, want %s first", p.Estimates, tt.model)
			}

			near(t, tt.name, p.Estimates[0].GoodputBps, tt.want*1e6, .002)
			for i, e := range p.Estimates {
				others := e.Model == ByClock || e.Model == ByCipher
				if e.OtherDevices != others {
					t.Errorf("%s: from other devices is %v", e.Model, e.OtherDevices)
				}

				if i > 0 && p.Estimates[i-1].OtherDevices && !e.OtherDevices {
					t.Errorf("%s comes after what other devices reach", e.Model)
				}
			}
		})
	}
}

// TestNeighboursRefuse: results of another setting are no neighbours, nor is one that is far away.
func TestNeighboursRefuse(t *testing.T) {
	c := published(t)
	row := func(mtu, streams int, condition string, bps float64) catalogue.Result {
		return catalogue.Result{
			Device:     "run",
			Tunnel:     "none",
			Protocol:   "tcp",
			MTU:        mtu,
			Streams:    streams,
			Condition:  condition,
			GoodputBps: &bps,
		}
	}
	rows := []catalogue.Result{row(1280, 4, "1000 rules", 200e6), row(1500, 4, "", 600e6)}
	q := catalogue.Result{Device: "run", Tunnel: "none", Protocol: "tcp", MTU: 1400, Streams: 4}
	if got := refusalOf(Predict(c, rows, q, nil), ByNeighbours); !strings.Contains(got, "both sides") {
		t.Errorf("across settings: refused for %q", got)
	}

	q.MTU = 500
	if got := refusalOf(Predict(c, rows, q, nil), ByNearest); !strings.Contains(got, "more than a factor") {
		t.Errorf("far away: refused for %q", got)
	}

	q.MTU, q.Streams = 0, 0
	if got := refusalOf(Predict(c, rows, q, nil), ByNeighbours); got != errNoAxis.Error() {
		t.Errorf("of no level: refused for %q", got)
	}

	rows = append(rows, row(1280, 4, "", 500e6))
	q.MTU, q.Streams = 1400, 4
	near(t, "of one setting", answer(t, Predict(c, rows, q, nil), ByNeighbours).GoodputBps, 555e6, .005)
}

// TestAdviseByNeighbours: advice rests on the device's own results at other levels before those of others.
func TestAdviseByNeighbours(t *testing.T) {
	c := published(t)
	// without the size that makes the sweep impossible
	c.Results = slices.DeleteFunc(c.Results, func(r catalogue.Result) bool { return r.MTU == 1280 })
	need := Need{WANBps: 500e6, Tunnel: "wireguard", MTU: 1410, Users: 4}
	for _, a := range Advise(c, need, LeaveOneOut(c, c.Results, OfPublished)) {
		if a.Device == "OpenWrt One" && (a.ByModel != ByNeighbours || a.Verdict != Enough) {
			t.Errorf("got %+v, want it enough by %s", a, ByNeighbours)
		}

		if a.Device == "mt7622" && !strings.Contains(a.Why, "from other devices") {
			t.Errorf("%q does not mark what other devices reach", a.Why)
		}
	}
}
