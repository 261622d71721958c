package lab_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
	"github.com/chokepoint-lab/chokepoint/internal/trial"
)

// TestWhatHappensInTheWindowIsNoticed: after a warm-up through WireGuard, the client's route goes past the
// tunnel as the window begins, so that its traffic is not encrypted; or a link of the router becomes
// narrower. The first trial is left alone, and valid as far as path and MTU go.
func TestWhatHappensInTheWindowIsNoticed(t *testing.T) {
	apart.Needs(t, "ip")
	t.Parallel()
	for name, tt := range map[string]struct {
		kind  string
		plant func(l *lab.Lab) (node string, script string)
	}{
		"past the tunnel": {evidence.ReasonNotInTunnel, func(l *lab.Lab) (string, string) {
			return "client", fmt.Sprintf("ip route replace %s via %s dev lan", l.Address(1, 1, 4),
				l.Addresses()["router"][0])
		}},
		"a narrower link": {evidence.ReasonWrongMTU, func(*lab.Lab) (string, string) {
			return "router", "ip link set wan mtu 1300"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each in a lab of its own
			p := labtest.ReadPlan(t, `
name: x
method: {runs: 2, order: listed, seed: 1}
matrix: {streams: 1, tunnel: wireguard}
measure: {latency_idle: off, latency_loaded: false, verify: false, telemetry: true}
`, registry.Vocabulary())
			p.Design.Method.Duration, p.Design.Method.Warmup = 2*time.Second, 2*time.Second
			labs := &lab.Locals{Owner: "run", Dir: t.TempDir(), Parts: registry.LabParts()}
			l, err := labs.For(labtest.Context(t), "forward", record.GuestSize{})
			labtest.Refused(t, err)
			if err != nil {
				t.Fatal(err)
			}
			var trials labtest.Trials
			c := &trial.Campaign{Run: record.Run{ID: "run", Lab: record.LabLocal, Design: p.Design,
				Topologies: []record.Topology{l.Topology}}, Plan: p, Labs: labs,
				Engines: node.Engines(), Prober: node.Prober(), Probes: node.Probes(), NewInterim: interim,
				Store: &trials}
			windows := 0
			c.Sink = func(e record.Event) {
				if e.Event != "phase" || e.Phase != record.PhaseWindow {
					return
				}
				if windows++; windows == 2 {
					at, script := tt.plant(l)
					labtest.Exec(t, l, at, strings.Fields(script)...)
				}
			}
			if err := c.Prepare(labtest.Context(t)); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if _, err := c.Execute(ctx); err != nil {
				t.Error(err)
			}
			if err := c.Close(labtest.Context(t)); err != nil {
				t.Logf("close: %v", err) // what was set behind its back may be in the way
			}
			d := analysis.Derive(c.Run, trials)
			if len(d.Trials) != 2 || d.Trials[0].Path == nil || d.Trials[0].Path.CountedFrom == 0 {
				t.Fatalf("got %+v, want two trials with counters of the window", d.Trials)
			}
			for i, want := range []bool{false, true} {
				got := slices.ContainsFunc(d.Trials[i].Reasons, func(r evidence.Reason) bool {
					return r.Kind == tt.kind
				})
				if got != want {
					t.Errorf("trial %d: %v, counters %+v: %s is %v, want %v", i+1, d.Trials[i].Reasons,
						d.Trials[i].Path, tt.kind, got, want)
				}
			}
		})
	}
}
