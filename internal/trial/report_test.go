package trial_test

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/steady"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/report"
	"github.com/chokepoint-lab/chokepoint/internal/trial"
)

// wholePlan goes over every shape with a router, plainly and through a tunnel.
const wholePlan = `
name: whole
method: {duration: 100ms, runs: 1, order: listed, seed: 7}
matrix:
  topology: [forward, to-router, site-to-site]
  tunnel: [none, wireguard]
  firewall: "10"
measure: {latency_idle: block, latency_loaded: true}
`

// carry takes the plan through campaign, store, analysis and report.
func carry(t testing.TB, r *fakeCampaign) (*analysis.Document, string) {
	t.Helper()
	ctx := context.Background()
	s, err := store.Open(ctx, filepath.Join(t.TempDir(), "store.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r.Begin = func(ctx context.Context, run record.Run) (trial.Store, error) {
		return s,
			s.CreateRun(ctx, run)
	}
	if err := r.Execute(ctx); err != nil {
		t.Fatal(err)
	}

	if err := s.EndRun(ctx, "run-1", record.RunDone, "", time.Now().UTC()); err != nil {
		t.Fatal(err)
	}

	run, err := s.Find(ctx, "latest")
	if err != nil {
		t.Fatal(err)
	}

	trials, err := s.Trials(ctx, run.ID)
	if err != nil {
		t.Fatal(err)
	}

	doc := analysis.Derive(run, trials)
	page, err := report.HTML(doc)
	if err != nil {
		t.Fatal(err)
	}

	if again, err := report.HTML(doc); err != nil || !bytes.Equal(page, again) {
		t.Errorf("report: got other bytes the second time (%v), want the same", err)
	}

	wantPutBack(t, r)
	return doc, string(page)
}

func TestPlanToReport(t *testing.T) {
	r := rig(t, wholePlan)
	began := time.Now()
	doc, page := carry(t, r)
	t.Logf("took %s", time.Since(began))
	for _, tr := range doc.Trials {
		if tr.Failure != nil {
			t.Errorf("trial %s of %v: got %+v, want no failure", tr.ID, tr.Factors, *tr.Failure)
		}
	}

	if len(doc.Cells) != 6 {
		t.Errorf("cells: got %d, want 6", len(doc.Cells))
	}

	for _, c := range doc.Cells {
		m := c.Metrics["goodput_bps"]
		if m.Median < 99e6 || m.Median > 101e6 {
			t.Errorf("goodput of %v: got %g, want the 100 Mbit/s that the engine carries", c.Factors,
				m.Median)
		}
	}

	if !strings.Contains(page, "site-to-site") {
		t.Error("report: got no word of site-to-site, want the cell")
	}
}

// TestAgentlessRouters: every router takes commands only. What can be measured is, with a caveat; what
// needs an agent is skipped with the reason.
func TestAgentlessRouters(t *testing.T) {
	routers := []string{"router", "router-a", "router-b"}
	r := rig(t, wholePlan)
	r.Labs.Agentless = routers
	doc, _ := carry(t, r)
	for _, tr := range doc.Trials {
		if tr.Failure != nil {
			t.Errorf("trial %s of %v: got %+v, want no failure", tr.ID, tr.Factors, *tr.Failure)
		}

		topology := tr.Factors["topology"]
		var got []string
		for _, c := range tr.Caveats {
			if c.Kind == "router-not-watched" {
				got = append(got, strings.Fields(c.Text)[0])
			}
		}

		want := map[string][]string{"forward": {"router"}, "site-to-site": {"router-a", "router-b"}}[topology]
		if !slices.Equal(got, want) {
			t.Errorf("caveats router-not-watched of %s (%s): got %v, want %v", tr.ID, topology, got, want)
		}
	}

	wantSkipped(t, doc, "topology=to-router tunnel=none", "node router has no agent to end traffic")
	wantSkipped(t, doc, "topology=forward tunnel=wireguard",
		"tunnel wireguard: node router has no agent to hold a tunnel's end")
	wantSkipped(t, doc, "topology=site-to-site tunnel=wireguard",
		"tunnel wireguard: node router-a has no agent to hold a tunnel's end")
	for _, name := range []string{"router-a", "router-b"} {
		ran := r.Labs.Fakes["site-to-site"].Routers[name].Ran()
		for _, want := range []string{"set firewall 10", "set firewall off"} {
			if !slices.Contains(ran, want) {
				t.Errorf("commands of %s: got %v, want %q among them", name, ran, want)
			}
		}
	}
}

func wantSkipped(t *testing.T, doc *analysis.Document, factors, reason string) {
	t.Helper()
	for _, s := range doc.Skipped {
		key := s.Factors.Key()
		has := true
		for _, f := range strings.Fields(factors) {
			has = has && strings.Contains(key, f)
		}

		if has {
			if s.Reason != reason {
				t.Errorf("skip reason of %s: got %q, want %q", factors, s.Reason, reason)
			}
			return
		}
	}

	t.Errorf("skipped: got %v, want %s among them", doc.Skipped, factors)
}

// TestDetourIsNoticed: the proof of the path is no formality.
func TestDetourIsNoticed(t *testing.T) {
	t.Parallel()
	r := rig(t, "name: x\nmethod: {runs: 1}\nmatrix: {topology: forward}\n")
	l, err := r.Labs.For(context.Background(), "forward", record.GuestSize{})
	if err != nil {
		t.Fatal(err)
	}

	r.Labs.Fakes[l.Topology.Name].Wire.Detour("router")
	if err := r.Execute(context.Background()); err != nil {
		t.Fatal(err)
	}

	for _, tr := range r.Trials {
		if tr.Status != record.TrialFailed || tr.Failure.Phase != record.PhaseVerify || tr.Traffic != nil ||
			!strings.Contains(tr.Failure.Error, "did not pass the router") {
			t.Errorf("trial %s past a router that was avoided: got %s (%+v), want failed in %s without "+
				"traffic",
				tr.ID, tr.Status, tr.Failure, record.PhaseVerify)
		}
	}
}

// TestDetourInTheWindowIsNoticed: the warm-up takes the path, the window does not. What is held against the
// window's payload are counters of the window, so that the warm-up is no proof.
func TestDetourInTheWindowIsNoticed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		agentless []string
		tunnel    string
		plant     func(w *labtest.Wire)
		valid     bool
	}{
		"past the tunnel":           {tunnel: "wireguard", plant: (*labtest.Wire).PastTunnels},
		"past the router":           {tunnel: "none", plant: func(w *labtest.Wire) { w.Detour("router") }},
		"through the tunnel":        {tunnel: "wireguard", plant: func(*labtest.Wire) {}, valid: true},
		"by a router without agent": {[]string{"router"}, "none", func(*labtest.Wire) {}, true},
	} {
		t.Run(name, func(t *testing.T) {
			steady.Run(t, func(t *steady.Trial) {
				r := rig(t, "name: x\nmethod: {runs: 1}\nmatrix: {topology: forward, tunnel: "+tt.tunnel+
					"}\nmeasure: {verify: false, latency_idle: off}\n")
				m := &r.Plan.Design.Method
				m.Warmup = 600 * time.Millisecond
				m.Duration = 300 * time.Millisecond
				r.Labs.Agentless = tt.agentless
				r.Labs.Engine = labtest.Engine{AtStart: tt.plant}
				doc, _ := carry(t, r)
				c := doc.Cells[0]
				tr := doc.Trials[0]
				noticed := slices.ContainsFunc(c.Reasons, func(r evidence.Reason) bool {
					return r.Kind == evidence.ReasonNotInTunnel
				})
				agents := tt.agentless == nil
				if (tr.Path.CountedFrom > 0) != agents {
					t.Timedf("counters of the window from %d on, want some if there is an agent: %v",
						tr.Path.CountedFrom, agents)
				} else if noticed == tt.valid || tt.valid && c.Grade != evidence.GradeValid {
					t.Timedf("got %s for %v, counters %+v", c.Grade, c.Reasons, tr.Path)
				}
			})
		})
	}
}
