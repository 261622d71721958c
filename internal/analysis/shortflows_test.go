package analysis

import (
	"math"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/method"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// shortFlows are a thousand flows of two classes: 900 small ones of 1 to 9 ms, 80 of 50 ms, 5 that failed
// and 15 that were not done.
func shortFlows() *record.ShortFlows {
	s := &record.ShortFlows{
		RateHz: 500, Started: 1000, Completed: 980, Failed: 5, Unfinished: 15, Carried: 20, Asked: 7,
		Confirmed: 7,
		Connect:   []record.TimeCount{{FromNs: 1000, Flows: 600}, {FromNs: 3000, Flows: 380}},
		Late:      []record.TimeCount{{FromNs: 0, Flows: 980}, {FromNs: 77, Flows: 20}},
		Classes: []record.FlowClass{{FromBytes: 0, Started: 910}, {FromBytes: 100e3, Started: 90,
			Times: []record.TimeCount{{FromNs: 50e6, Flows: 80}}}, {FromBytes: 10e6}},
	}
	for i := range int64(9) {
		s.Classes[0].Times = append(s.Classes[0].Times, record.TimeCount{FromNs: (i + 1) * 1e6, Flows: 100})
	}
	return s
}

func flowTrial(s *record.ShortFlows) *record.Trial {
	t := newSynthetic(1).trial(quickFactors(), 1, 1, 1e8)
	t.Traffic.ShortFlows = s
	return &t
}

func TestShortFlowMetrics(t *testing.T) {
	trial := flowTrial(shortFlows())
	m := newMeasured()
	m.addShortFlows(trial)
	for name, want := range map[string]float64{
		flowRate: 1000 / trial.Window.Seconds(), flowFailed: .005, flowUnfinished: .015, flowLate: 77,
		"flow_connect_p50_ns": 1000, "flow_connect_p90_ns": 3000,
		"flow_completion_p50_ns": 5e6, "flow_completion_p90_ns": 9e6,
		"flow_completion_small_p50_ns": 5e6, "flow_completion_medium_p50_ns": 50e6,
	} {
		if got := m.values[name]; got != want {
			t.Errorf("%s: got %v, want %v (%s)", name, got, want, m.missing[name])
		}
	}
	// Two in a hundred have no time, and 90 flows carry no p99.
	for _, name := range []string{"flow_completion_p99_ns", "flow_connect_p99_ns",
		"flow_completion_medium_p99_ns", "flow_completion_medium_p90_ns"} {
		if _, ok := m.values[name]; ok || m.missing[name] == "" {
			t.Errorf("%s: got %v, want none and a reason", name, m.values[name])
		}
	}
	if _, ok := m.values["flow_completion_large_p50_ns"]; ok {
		t.Error("no flow was large, and yet there is a time of them")
	}
	if _, ok := m.values[requestRate]; ok {
		t.Error("flows are no requests")
	}
}

func TestFlowsThatAreNotDueAreNotLate(t *testing.T) {
	s := shortFlows()
	s.RateHz = 0
	m := newMeasured()
	m.addShortFlows(flowTrial(s))
	if _, ok := m.values[flowLate]; ok || m.missing[flowLate] != "" ||
		m.values["flow_connect_p50_ns"] != 1000 {
		t.Errorf("got %v, missing %v", m.values, m.missing)
	}
}

func TestRequestMetrics(t *testing.T) {
	s := shortFlows()
	s.Kept = true
	trial := flowTrial(s)
	m := newMeasured()
	m.addShortFlows(trial)
	if got, want := m.values[requestRate], 1000/trial.Window.Seconds(); got != want ||
		m.values["request_p50_ns"] != 5e6 || m.missing["request_p99_ns"] == "" {
		t.Errorf("got %v and %v, want %v requests a second of 5 ms, and no p99", m.values, m.missing, want)
	}
	if _, ok := m.values[flowRate]; ok {
		t.Error("requests are no flows")
	}
}

func TestFlowAccountsMustAddUp(t *testing.T) {
	for name, change := range map[string]func(*record.ShortFlows){
		"":      func(*record.ShortFlows) {},
		"flow":  func(s *record.ShortFlows) { s.Failed++ },
		"byte":  func(s *record.ShortFlows) { s.Confirmed-- },
		"empty": func(s *record.ShortFlows) { *s = record.ShortFlows{} },
	} {
		s := shortFlows()
		change(s)
		if got := flowAccounts(&record.Traffic{ShortFlows: s}); (len(got) > 0) != (name != "") {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestFlowMetricsAreAllDeclared(t *testing.T) {
	declared := map[string]bool{}
	for _, m := range Metrics() {
		declared[m.Name] = true
	}
	m := newMeasured()
	m.addShortFlows(flowTrial(shortFlows()))
	kept := shortFlows()
	kept.Kept = true
	m.addShortFlows(flowTrial(kept))
	for _, names := range []map[string]bool{keysOf(m.values), keysOf(m.missing)} {
		for name := range names {
			if !declared[name] {
				t.Errorf("%s is not declared", name)
			}
		}
	}
}

func keysOf[V any](m map[string]V) map[string]bool {
	out := map[string]bool{}
	for k := range m {
		out[k] = true
	}
	return out
}

func TestSearchOfNewConnections(t *testing.T) {
	preset, _ := method.PresetNamed("quick")
	m := record.Method{Search: &record.Search{Preset: "quick", MinHz: 10, MaxHz: 10000, MaxTime: time.Hour}}
	for _, g := range preset.Goals {
		g.FinalDuration, g.InitialDuration, g.DurationSum = time.Second, time.Second, 3*time.Second
		m.Search.Goals = append(m.Search.Goals, record.Goal(g))
	}
	f := quickFactors("engine", "flows")
	if SearchUnit(f) != record.UnitFlows {
		t.Fatalf("unit %q, want %q", SearchUnit(f), record.UnitFlows)
	}
	const carries = 3000.0
	run := record.Run{ID: "r", Lab: "local", Status: record.RunDone, Design: record.Design{Method: m,
		Cells: []record.Factors{f}}}
	var trials []record.Trial
	var known []*record.Trial
	for {
		next, more, err := NextOfSearch(m, record.UnitFlows, 0, 1, known, nil)
		if err != nil || len(trials) > 200 {
			t.Fatalf("after %d trials: %v", len(trials), err)
		}
		if !more {
			break
		}
		tr := newSynthetic(uint64(len(trials))).trial(f, 1, 1, 1e8)
		tr.Status, tr.Search, tr.Attempt = record.TrialOK, &next, len(trials)+1
		started := int64(next.Load)
		lost := max(started-int64(carries), 0)
		tr.Traffic.ShortFlows = &record.ShortFlows{Started: started, Completed: started - lost,
			Failed: lost / 2, Unfinished: lost - lost/2, Tardy: lost - lost/2}
		trials, known = append(trials, tr), append(known, &tr)
	}
	d := Derive(run, trials)
	for name, want := range map[string]float64{connectionsNDR: carries, connectionsPDR: carries} {
		if got := d.Cells[0].Metrics[name].Median; math.Abs(got/want-1) > .02 {
			t.Errorf("%s: got %v, want %v: %+v", name, got, want, d.Searches)
		}
	}
	if _, ok := d.Cells[0].Metrics[throughputPaced]; ok || d.Searches[0].Results[0].ThroughputBps != nil {
		t.Errorf("connections have no bits: %+v", d.Searches[0].Results[0])
	}
}

func TestLostConnections(t *testing.T) {
	for want, s := range map[float64]*record.ShortFlows{0: {Started: 100, Completed: 90, Unfinished: 10,
		Carried: 6}, .3: {Started: 10, Completed: 9, Failed: 1, Tardy: 2},
		1: {Started: 1, Failed: 1, Tardy: 1}, .25: {Started: 100, Completed: 70, Failed: 10, Unfinished: 20,
			Carried: 5}} {
		if got := lostConnections(&record.Trial{Traffic: &record.Traffic{ShortFlows: s}}); got != want {
			t.Errorf("%+v: got %v, want %v", s, got, want)
		}
	}
	for _, tr := range []*record.Traffic{nil, {}, {ShortFlows: &record.ShortFlows{}}} {
		if got := lostConnections(&record.Trial{Traffic: tr}); got != 1 {
			t.Errorf("%+v: got %v, want all lost", tr, got)
		}
	}
}
