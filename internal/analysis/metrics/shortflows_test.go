package metrics

import (
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/quick"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func flowTrial(s *record.ShortFlows) *record.Trial {
	return &record.Trial{Window: record.Window{End: 10e9}, Traffic: &record.Traffic{ShortFlows: s}}
}

func TestShortFlowMetrics(t *testing.T) {
	trial := flowTrial(quick.ShortFlows())
	m := NewMeasured()
	m.addShortFlows(trial)
	for name, want := range map[string]float64{
		FlowRate: 1000 / trial.Window.Seconds(), FlowFailed: .005, flowUnfinished: .015, flowLate: 77,
		"flow_connect_p50_ns": 1000, "flow_connect_p90_ns": 3000,
		"flow_completion_p50_ns": 5e6, "flow_completion_p90_ns": 9e6,
		"flow_completion_small_p50_ns": 5e6, "flow_completion_medium_p50_ns": 50e6,
	} {
		got := m.Values[name]
		if got != want {
			t.Errorf("%s: got %v, want %v (%s)", name, got, want, m.Missing[name])
		}
	}

	// Two in a hundred have no time, and 90 flows carry no p99.
	for _, name := range []string{"flow_completion_p99_ns", "flow_connect_p99_ns",
		"flow_completion_medium_p99_ns", "flow_completion_medium_p90_ns"} {
		if _, ok := m.Values[name]; ok || m.Missing[name] == "" {
			t.Errorf("%s: got %v, want none and a reason", name, m.Values[name])
		}
	}

	if _, ok := m.Values["flow_completion_large_p50_ns"]; ok {
		t.Error("no flow was large, and yet there is a time of them")
	}

	if _, ok := m.Values[RequestRate]; ok {
		t.Error("flows are no requests")
	}
}

func TestFlowsThatAreNotDueAreNotLate(t *testing.T) {
	s := quick.ShortFlows()
	s.RateHz = 0
	m := NewMeasured()
	m.addShortFlows(flowTrial(s))
	if _, ok := m.Values[flowLate]; ok || m.Missing[flowLate] != "" ||
		m.Values["flow_connect_p50_ns"] != 1000 {
		t.Errorf("got %v, missing %v", m.Values, m.Missing)
	}
}

func TestRequestMetrics(t *testing.T) {
	s := quick.ShortFlows()
	s.Kept = true
	trial := flowTrial(s)
	m := NewMeasured()
	m.addShortFlows(trial)
	got, want := m.Values[RequestRate], 1000/trial.Window.Seconds()
	if got != want ||
		m.Values["request_p50_ns"] != 5e6 || m.Missing["request_p99_ns"] == "" {
		t.Errorf("got %v and %v, want %v requests a second of 5 ms, and no p99", m.Values, m.Missing, want)
	}

	if _, ok := m.Values[FlowRate]; ok {
		t.Error("requests are no flows")
	}
}

func TestFlowMetricsAreAllDeclared(t *testing.T) {
	declared := map[string]bool{}
	for _, m := range Metrics() {
		declared[m.Name] = true
	}

	m := NewMeasured()
	m.addShortFlows(flowTrial(quick.ShortFlows()))
	kept := quick.ShortFlows()
	kept.Kept = true
	m.addShortFlows(flowTrial(kept))
	for _, names := range []map[string]bool{keysOf(m.Values), keysOf(m.Missing)} {
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
