package analysis

import (
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// fullHost leaves the machine that carries the lab no time.
func fullHost(_ *record.Run, tr *record.Trial) {
	for _, name := range samples(tr, record.HostNode, "cpu").Names {
		switch core, stem, _ := strings.Cut(name, "/"); {
		case len(core) < 4: // of all cores
		case stem == "user_ns":
			grow(tr, record.HostNode, "cpu", name, float64(tr.Window.End-tr.Window.Start))
		default:
			grow(tr, record.HostNode, "cpu", name, 0)
		}
	}
}

// TestSlowSenderOnAFullMachine: a sender that waits for a core has nothing to send either, and one that
// seldom asks for a core is slow all the same. Where nothing tells whether the cores were full, neither does
// the rule.
func TestSlowSenderOnAFullMachine(t *testing.T) {
	if j := judged(t, example{file: "starved-sender"}, diagnosis.SlowSender); j.Score > 0 {
		t.Errorf("an untouched load on full cores: got score %.2f, %q, want it silent", j.Score, j.Text)
	}
	if j := judged(t, example{"slow-sender", fullHost}, diagnosis.SlowSender); !(j.Score > 0) {
		t.Errorf("a slow writer beside other load: got score %.2f (%v), want it to fire", j.Score, j.Facts)
	}
	j := judged(t, example{"slow-sender", func(_ *record.Run, tr *record.Trial) {
		delete(tr.Nodes, record.HostNode)
	}}, diagnosis.SlowSender)
	if !strings.Contains(j.NotExamined, "shared cores") {
		t.Errorf("without the CPUs' samples: got score %v, %q, want not examined", j.Score, j.NotExamined)
	}
}

// TestTesterIsComparedInItsUnit: a load of connections is held against the connections per second that the
// tester reaches, a tunnel that the ends make against nothing, and what is above the ceiling against none.
func TestTesterIsComparedInItsUnit(t *testing.T) {
	j := judged(t, example{file: "flows"}, diagnosis.Tester)
	if len(j.Facts) == 0 || j.Facts[0].Metric != metrics.FlowRate ||
		*j.Facts[0].Value > *j.Facts[0].Baseline {
		t.Errorf("connections: got %+v, want less than the tester's own rate of them", j)
	}
	if j = judged(t, example{file: "wireguard-kernel"}, diagnosis.Tester); !strings.Contains(j.NotExamined,
		"encrypt") {
		t.Errorf("a tunnel: got score %v, %q, want not examined", j.Score, j.NotExamined)
	}
	alone := func(by float64, shared bool) example {
		return example{"one-core", func(run *record.Run, tr *record.Trial) {
			for i := range run.Ceilings {
				run.Ceilings[i].Value = 7.559e8 / by
			}
			if shared {
				fullHost(run, tr)
			}
		}}
	}
	if j = judged(t, alone(1.4, false), diagnosis.Tester); !strings.Contains(j.NotExamined, "140 %") {
		t.Errorf("above the ceiling: got score %v, %q, want not examined", j.Score, j.NotExamined)
	}
	if j = judged(t, alone(.97, false), diagnosis.Tester); !(j.Score > 0) {
		t.Errorf("97 %% of the ceiling: got score %v, want it to fire", j.Score)
	}
	if on := judged(t, alone(.97, true), diagnosis.Tester); !(on.Score < j.Score-2) {
		t.Errorf("97 %% of the ceiling on full shared cores: got score %v, want well below %v", on.Score,
			j.Score)
	}
	o := observed(t, example{file: "paced"})
	o.Reasons = []evidence.Reason{{Kind: evidence.ReasonTesterLimited, Text: "it could not send",
		Facts: []evidence.Evidence{{Metric: metrics.UnsentRatio}}}}
	r, _ := diagnosis.RuleOf(diagnosis.Tester)
	if j = r.Judge(o); !(j.Score > 0) || j.Facts[0].Text != "it could not send" {
		t.Errorf("packets that it could not send: got %+v, want it to fire for them", j)
	}
}

// waiting lets the round trips beside the load take so long.
func waiting(ns int64) func(*record.Run, *record.Trial) {
	return func(_ *record.Run, tr *record.Trial) {
		for i := range tr.Loaded.RTT {
			tr.Loaded.RTT[i] = ns
		}
	}
}

// TestHealthyIsWithoutLossAndDelay: a load that gets its rate is healthy if little is lost and little waits;
// where either is not known, so is this.
func TestHealthyIsWithoutLossAndDelay(t *testing.T) {
	again := func(by int64) example {
		return example{"paced", func(_ *record.Run, tr *record.Trial) {
			tr.Traffic.Flows[0].TCP.Retransmits = by
		}}
	}
	for name, tt := range map[string]struct {
		example
		fires bool
	}{
		"as recorded": {example{file: "paced"}, true}, "one segment again": {again(1), true},
		"many segments again": {again(40), false}, "short waits": {example{"paced", waiting(5e6)}, true},
		"long waits": {example{"paced", waiting(25e6)}, false},
		"lost probes": {example{"paced", func(_ *record.Run, tr *record.Trial) {
			for i := 0; i < len(tr.Loaded.RTT); i += 20 {
				tr.Loaded.RTT[i] = -1
			}
		}}, false},
	} {
		j := judged(t, tt.example, diagnosis.Healthy)
		if j.Score > 0 != tt.fires || len(j.Facts) < 3 || j.Facts[0].Metric != metrics.Goodput ||
			j.Facts[1].Metric != metrics.Retransmits || j.Facts[2].Metric != "rtt_loaded_p50_ns" {
			t.Errorf("%s: got score %.2f, %+v, want it to fire: %v, for rate, loss and delay", name, j.Score,
				j.Facts, tt.fires)
		}
	}
	for name, scene := range map[string]func(*record.Run, *record.Trial){
		"packet loss": func(_ *record.Run, tr *record.Trial) { tr.Traffic.Flows[0].TCP = nil },
		"RTT under load": func(_ *record.Run, tr *record.Trial) {
			tr.Loaded = nil
			for i := range tr.Traffic.Flows {
				tr.Traffic.Flows[i].TCP.Series, tr.Traffic.Flows[i].TCP.MinRTTNs = nil, 0
			}
		},
	} {
		j := judged(t, example{"paced", scene}, diagnosis.Healthy)
		if !strings.Contains(j.NotExamined, name) {
			t.Errorf("%s not known: got score %v, %q, want not examined", name, j.Score, j.NotExamined)
		}
	}
}

// TestCausesKnowTheIdlePath: delay is held against the idle measurement of the path in the load's own block,
// else in the last before it, and never in a later one.
func TestCausesKnowTheIdlePath(t *testing.T) {
	f := quickFactors()
	for _, tt := range []struct {
		idle, load int  // blocks
		known      bool // to the load
	}{{2, 2, true}, {1, 2, true}, {3, 2, false}} {
		s := newSynthetic(5)
		idle, load := s.idle(f, tt.idle, 1), s.trial(f, tt.load, 2, 50e6)
		for i := range idle.Idle.RTT {
			idle.Idle.RTT[i] = 1_234_000
		}
		load.Traffic.Load.RateBps = 50e6
		for i := range load.Traffic.Flows {
			load.Traffic.Flows[i].TCP.Retransmits = 0
		}
		run := syntheticRun(f)
		d := Derive(run, []record.Trial{idle, load}).Cells[0].Diagnosis
		if d == nil || d.Class != diagnosis.Healthy {
			t.Fatalf("got %+v, want a healthy load", d)
		}
		if e := d.Causes[0].Facts[2]; (*e.Baseline == 1_234_000) != tt.known {
			t.Errorf("idle path in block %d, load in block %d: got %+v, want it known: %v", tt.idle, tt.load,
				e, tt.known)
		}
	}
}

// TestStabilityFirst: a cell whose trials lie far apart is unstable, before every cause that would hold each
// at the same rate, and one at the tester's own limit is the tester's; a cause that comes and goes stands.
func TestStabilityFirst(t *testing.T) {
	even, apart := []float64{20e6, 20.2e6, 19.9e6, 20.1e6}, []float64{8e6, 31e6, 20e6, 14e6}
	for _, tt := range []struct {
		name, want string
		of         example
		rates      []float64
	}{
		{"a link, even", diagnosis.LinkRate, example{file: "link-rate"}, even},
		{"a link, apart", diagnosis.Unstable, example{file: "link-rate"}, apart},
		{"a link, two trials", diagnosis.LinkRate, example{file: "link-rate"}, apart[:2]},
		{"a core, apart", diagnosis.Unstable, example{file: "one-core"}, apart},
		{"healthy, apart", diagnosis.Unstable, example{file: "paced"}, apart},
		{"what comes and goes", diagnosis.OtherLoad, example{file: "cpu-hog"}, apart},
		{"the tester's limit", diagnosis.Tester, example{"one-core", func(run *record.Run, _ *record.Trial) {
			for i := range run.Ceilings {
				run.Ceilings[i].Value = 7.7e8
			}
		}}, even},
	} {
		all := make([][]diagnosis.Judgement, len(tt.rates))
		for i := range all {
			all[i] = diagnosis.Examine(observed(t, tt.of))
		}
		d := diagnosis.Conclude(all, tt.rates...)
		if d.Class != tt.want {
			t.Errorf("%s: got %s (%.2f: %s), want %s", tt.name, d.Class, d.Confidence, d.Text, tt.want)
		}
		if e := d.Causes[0].Facts[0]; tt.want == diagnosis.Unstable && (*e.Low != 8e6 || *e.High != 31e6) {
			t.Errorf("%s: got %+v, want the trials' rates", tt.name, e)
		}
	}
}

// TestCellsAreHeldToTheirSpread: the document's cells know the rates of their trials.
func TestCellsAreHeldToTheirSpread(t *testing.T) {
	for want, rates := range map[string][]float64{diagnosis.Unstable: {1e9, 4e9, 7e9, 2e9},
		diagnosis.Unknown: {4e9, 4.1e9, 4e9, 3.9e9}} {
		s, f := newSynthetic(6), quickFactors()
		var trials []record.Trial
		for i, rate := range rates {
			trials = append(trials, s.trial(f, i+1, i+1, rate))
		}
		if d := Derive(syntheticRun(f), trials).Cells[0].Diagnosis; d == nil || d.Class != want {
			t.Errorf("rates %v: got %+v, want %s", rates, d, want)
		}
	}
}

// TestLossWithoutALoad: what the idle path loses is no load's doing.
func TestLossWithoutALoad(t *testing.T) {
	lossy := func(x example, share float64) *diagnosis.Observation {
		o := observed(t, x)
		o.Idle = map[string]float64{metrics.ProbeLossIdle: share}
		return o
	}
	unseen := func(_ *record.Run, tr *record.Trial) { tr.Nodes = nil }
	for class, x := range map[string]example{diagnosis.Healthy: {file: "paced"},
		diagnosis.Unstable: {file: "one-core"}, diagnosis.Policer: {"policer", unseen}} {
		r, _ := diagnosis.RuleOf(class)
		before, after := r.Judge(lossy(x, 0)), r.Judge(lossy(x, .12))
		if fires := after.Score > 0; fires != (class == diagnosis.Unstable) || before.Score > 0 == fires {
			t.Errorf("%s: got score %.2f with loss on the idle path, %.2f without", class, after.Score,
				before.Score)
		}
	}
}
