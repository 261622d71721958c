package analysis

import (
	"slices"
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
	if j := checked(t, example{file: "starved-sender"}, diagnosis.SlowSender); j.Score > 0 {
		t.Errorf("an untouched load on full cores: got score %.2f, %q, want it silent", j.Score, j.Text)
	}

	if j := checked(t, example{"slow-sender", fullHost}, diagnosis.SlowSender); !(j.Score > 0) {
		t.Errorf("a slow writer beside other load: got score %.2f (%v), want it to fire", j.Score, j.Facts)
	}

	j := checked(t, example{"slow-sender", func(_ *record.Run, tr *record.Trial) {
		delete(tr.Nodes, record.HostNode)
	}}, diagnosis.SlowSender)
	if !strings.Contains(j.NotExamined, "shared cores") {
		t.Errorf("without the CPUs' samples: got score %v, %q, want not examined", j.Score, j.NotExamined)
	}
}

// TestTesterIsComparedInItsUnit: a load of connections is held against the connections per second that the
// tester reaches, a tunnel that the ends make against nothing, and what is above the ceiling against none.
func TestTesterIsComparedInItsUnit(t *testing.T) {
	j := checked(t, example{file: "flows"}, diagnosis.Tester)
	if len(j.Facts) == 0 || j.Facts[0].Metric != metrics.FlowRate ||
		*j.Facts[0].Value > *j.Facts[0].Baseline {
		t.Errorf("connections: got %+v, want less than the tester's own rate of them", j)
	}

	if j = checked(t, example{file: "wireguard-kernel"}, diagnosis.Tester); !strings.Contains(j.NotExamined,
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
	if j = checked(t, alone(1.4, false), diagnosis.Tester); !strings.Contains(j.NotExamined, "140 %") {
		t.Errorf("above the ceiling: got score %v, %q, want not examined", j.Score, j.NotExamined)
	}

	if j = checked(t, alone(.97, false), diagnosis.Tester); !(j.Score > 0) {
		t.Errorf("97 %% of the ceiling: got score %v, want it to fire", j.Score)
	}

	on := checked(t, alone(.97, true), diagnosis.Tester)
	if !(on.Score < j.Score-2) {
		t.Errorf("97 %% of the ceiling on full shared cores: got score %v, want well below %v", on.Score,
			j.Score)
	}

	o := observed(t, example{file: "paced"})
	o.Reasons = []evidence.Reason{{
		Kind:  evidence.ReasonTesterLimited,
		Text:  "it could not send",
		Facts: []evidence.Evidence{{Metric: metrics.UnsentRatio}},
	}}
	if j = ofClass(t, o, diagnosis.Tester); !(j.Score > 0) || j.Facts[0].Text != "it could not send" {
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
			tr.Traffic.Flows[0].TCP.Retransmits = new(by)
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
		j := checked(t, tt.example, diagnosis.Healthy)
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
		j := checked(t, example{"paced", scene}, diagnosis.Healthy)
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
		idle := s.idle(f, tt.idle, 1)
		load := s.trial(f, tt.load, 2, 50e6)
		for i := range idle.Idle.RTT {
			idle.Idle.RTT[i] = 1_234_000
		}

		load.Traffic.Load.RateBps = 50e6
		for i := range load.Traffic.Flows {
			load.Traffic.Flows[i].TCP.Retransmits = new(int64(0))
		}

		run := syntheticRun(f)
		d := Derive(run, []record.Trial{idle, load}).Cells[0].Diagnosis
		if d == nil || d.Class != diagnosis.Healthy {
			t.Fatalf("got %+v, want a healthy load", d)
		}

		e := d.Causes[0].Facts[2]
		if (*e.Baseline == 1_234_000) != tt.known {
			t.Errorf("idle path in block %d, load in block %d: got %+v, want it known: %v", tt.idle, tt.load,
				e, tt.known)
		}
	}
}

// TestSpreadIsNoCause: that the trials of a cell lie far apart stands beside its cause, and beats none that
// has evidence.
func TestSpreadIsNoCause(t *testing.T) {
	even := []float64{20e6, 20.2e6, 19.9e6, 20.1e6, 20e6, 20e6}
	apart := []float64{8e6, 31e6, 20e6, 14e6, 9e6, 30e6}
	for _, tt := range []struct {
		name, want string
		of         example
		rates      []float64
	}{
		{"a link, even", diagnosis.LinkRate, example{file: "link-rate"}, even},
		{"a link, apart", diagnosis.LinkRate, example{file: "link-rate"}, apart},
		{"a core, three trials", diagnosis.SoftirqOneCore, example{file: "one-core"}, apart[:3]},
		{"a core, apart", diagnosis.SoftirqOneCore, example{file: "one-core"}, apart},
		{"what comes and goes", diagnosis.OtherLoad, example{file: "cpu-hog"}, apart},
		{"the tester's limit", diagnosis.Tester, example{"one-core", func(run *record.Run, _ *record.Trial) {
			for i := range run.Ceilings {
				run.Ceilings[i].Value = 7.7e8
			}
		}}, even},
	} {
		all := make([][]diagnosis.Candidate, len(tt.rates))
		for i := range all {
			all[i] = diagnosis.Examine(observed(t, tt.of))
		}

		d := diagnosis.Conclude(all, tt.rates...)
		if d.Class != tt.want {
			t.Errorf("%s: got %s (%.2f: %s), want %s", tt.name, d.Class, d.Confidence, d.Text, tt.want)
		}

		if tt.rates[0] == 8e6 && slices.ContainsFunc(d.Excluded, func(x diagnosis.Exclusion) bool {
			return x.Class == diagnosis.Unstable
		}) {
			t.Errorf("%s: one even trial rules out that the path is unstable", tt.name)
		}

		facts := d.Causes[0].Facts
		e := facts[len(facts)-1]
		if (e.Low != nil && *e.Low == 8e6) != (tt.rates[0] == 8e6) {
			t.Errorf("%s: got %+v last, want the trials' rates where they lie apart", tt.name, e)
		}
	}
}

// TestCellsAreHeldToTheirSpread: the document's cells know the rates of their trials. Where no cause is
// known, those of six or more that lie apart make the cell unstable, and fewer are a caution.
func TestCellsAreHeldToTheirSpread(t *testing.T) {
	for _, tt := range []struct {
		want, words string
		rates       []float64
	}{{diagnosis.Unstable, "6 trials differ", []float64{1e9, 4e9, 7e9, 2e9, 1.5e9, 6e9}},
		{diagnosis.Unknown, "4 trials differ", []float64{1e9, 4e9, 7e9, 2e9}},
		{diagnosis.Unknown, "not known", []float64{4e9, 4.1e9, 4e9, 3.9e9, 4e9, 4e9}}} {
		s := newSynthetic(6)
		f := quickFactors()
		var trials []record.Trial
		for i, rate := range tt.rates {
			trials = append(trials, s.trial(f, i+1, i+1, rate))
		}

		d := Derive(syntheticRun(f), trials).Cells[0].Diagnosis
		if d.Class != tt.want || !strings.Contains(d.Text, tt.words) {
			t.Errorf("rates %v: got %s %q, want %s: %s", tt.rates, d.Class, d.Text, tt.want, tt.words)
		}
	}
}

// lostInRuns loses three runs of 20 probes each, while the load's bytes arrive, or do not.
func lostInRuns(arrive bool) func(*record.Run, *record.Trial) {
	return func(_ *record.Run, tr *record.Trial) {
		l := tr.Loaded
		for i := range l.RTT {
			l.RTT[i] = max(l.RTT[i], 300_000)
			if i%30 >= 10 && i < 90 {
				l.RTT[i] = -1
			}
		}

		var lost []record.Window
		for i := 10; i < 90; i += 30 {
			lost = append(lost, record.Window{Start: l.SentAt[i], End: l.SentAt[i+19] + l.IntervalNs})
		}

		for _, f := range tr.Traffic.Flows {
			table := *f.Received
			table.T = nil
			table.V = [][]float64{nil}
			table.Names = []string{"bytes"}
			sum := 0.0
			for at := tr.Window.Start; at <= tr.Window.End; at += 20e6 {
				during := slices.ContainsFunc(lost, func(w record.Window) bool { return w.Holds(at) })
				if arrive || !during {
					sum += float64(f.ReceivedBytes) / 50
				}

				table.T, table.V[0] = append(table.T, at), append(table.V[0], sum)
			}

			*f.Received = table
		}
	}
}

// TestOutagesStopTheData: the path is down where probes are lost in runs and no data arrives meanwhile, and a
// core that is full explains such runs.
func TestOutagesStopTheData(t *testing.T) {
	inRow := func(length int64) func(*record.Run, *record.Trial) {
		return func(_ *record.Run, tr *record.Trial) {
			for i := range tr.Traffic.Flows {
				f := &tr.Traffic.Flows[i]
				f.Packets = &record.Packets{
					Sent:       10_000,
					Received:   9_400,
					Lost:       600,
					Duplicates: new(int64(0)),
					Gaps: []record.Gap{{
						Length:  length,
						Gaps:    600 / length,
						Packets: 600,
					}},
				}
			}
		}
	}
	for _, tt := range []struct {
		name  string
		of    example
		fires bool
	}{
		{"no data arrives", example{"route-flap", lostInRuns(false)}, true},
		{"data arrives", example{"route-flap", lostInRuns(true)}, false},
		{"datagrams are lost in long runs", example{"route-flap", inRow(300)}, true},
		{"datagrams are lost one by one", example{"route-flap", inRow(2)}, false},
		{"a full core", example{"all-cores", lostInRuns(false)}, false},
	} {
		d := diagnosis.Conclude([][]diagnosis.Candidate{diagnosis.Examine(observed(t, tt.of))})
		if (d.Class == diagnosis.Unstable) != tt.fires {
			t.Errorf("%s: got %s (%.2f: %s), want unstable: %v", tt.name, d.Class, d.Confidence, d.Text,
				tt.fires)
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
		before := ofClass(t, lossy(x, 0), class)
		after := ofClass(t, lossy(x, .12), class)
		fires := after.Score > 0
		if fires != (class == diagnosis.Unstable) || before.Score > 0 == fires {
			t.Errorf("%s: got score %.2f with loss on the idle path, %.2f without", class, after.Score,
				before.Score)
		}
	}
}
