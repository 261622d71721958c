package analysis

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// sampledRun is a run of one cell, with a declared series of a probe at the router: value is its reading in a
// trial at so many seconds.
func sampledRun(trials int, rate float64, m record.Metric, column string,
	value func(trial int, seconds float64) float64) *Document {
	s := newSynthetic(1)
	f := quickFactors()
	run := syntheticRun(f)
	var all []record.Trial
	for i := range trials {
		t := s.trial(f, i+1, i+1, rate)
		table := record.NewTable(column, "other/"+m.Name)
		for at := t.Window.Begin; at <= t.Window.Stop; at += second / 2 {
			table.Append(at, value(i, float64(at-t.Window.Begin)/1e9), 0)
		}

		router := t.Nodes["router"]
		router.Samples = append(router.Samples, record.Samples{
			Probe:   "probe",
			Scope:   record.ScopeNode,
			Metrics: []record.Metric{m},
			Table:   table,
		})
		t.Nodes["router"] = router
		all = append(all, t)
	}

	return Derive(run, all)
}

// TestSampledSettingsAreCompared: whatever the samples hold of a testbed, a setting that differs is a cause,
// and a counter that moves otherwise than the load is shown; what varies by itself is neither.
func TestSampledSettingsAreCompared(t *testing.T) {
	level := func(name string) record.Metric { return record.Metric{Name: name, Unit: "count"} }
	counter := record.Metric{Name: "drops", Unit: "count", Counter: true}
	fixed := func(v float64) func(int, float64) float64 { return func(int, float64) float64 { return v } }
	growing := func(perSecond float64) func(int, float64) float64 {
		return func(trial int, s float64) float64 { return perSecond * s * (1 + .01*float64(trial)) }
	}
	for _, tt := range []struct {
		name   string
		metric record.Metric
		column string
		a, b   func(int, float64) float64
		rate   float64 // of the second run ÷ that of the first
		want   string
		cause  bool
	}{
		{"forty rules", level("filter_rules"), "filter_rules", fixed(0), fixed(40), 1,
			"setting filter_rules on router: 0 → 40", true},
		{"two thousand rules, two more", level("filter_rules"), "filter_rules", fixed(2000), fixed(2002), 1,
			"setting filter_rules on router: 2000 → 2002", true},
		{"another queue", level("kind_fq_codel"), "wan/kind_fq_codel", fixed(1), fixed(0), 1,
			"setting wan/kind_fq_codel on router: 1 → 0", true},
		{"a table of connections", level("max"), "max", fixed(262144), fixed(1024), 1,
			"setting max on router: 262144 → 1024", true},
		{"the same rules", level("filter_rules"), "filter_rules", fixed(40), fixed(40), 1, "", false},
		{"a level that wanders", level("backlog_bytes"), "wan/backlog_bytes",
			func(trial int, s float64) float64 { return s + float64(trial) },
			func(trial int, s float64) float64 { return s + float64(3-trial) }, 1, "", false},
		{"drops", counter, "wan/drops", growing(0), growing(100), 1,
			"counter drops on router: 0/s → 100 to 102/s", false},
		{"packets of twice the load", counter, "wan/drops", growing(100), growing(200), 2, "", false},
		{"as many drops of half the load", counter, "wan/drops", growing(100), growing(100), .5, "", false},
	} {
		a := sampledRun(3, 1e9, tt.metric, tt.column, tt.a)
		b := sampledRun(3, 1e9*tt.rate, tt.metric, tt.column, tt.b)
		c := CompareRuns(a, b)
		var said []string
		for _, ch := range c.Changes {
			said = append(said, fmt.Sprintf("%s %s: %s → %s", ch.Kind, ch.Name, ch.A, ch.B))
			if ch.Cause != tt.cause {
				t.Errorf("%s: %s is a cause: %v", tt.name, ch.Name, ch.Cause)
			}
		}

		got := strings.Join(said, "\n")
		if got != tt.want {
			t.Errorf("%s: what differs:\n%s\nwant\n%s", tt.name, got, tt.want)
		}

		words := strings.Join(c.Summary, " ")
		if tt.cause == strings.Contains(words, "No setting") {
			t.Errorf("%s: the summary is %s", tt.name, words)
		}
	}
}

// TestASeriesThatIsGoneDiffers: a queue that only one of the runs had is a difference, one of a probe that
// the other run had not is not known.
func TestASeriesThatIsGoneDiffers(t *testing.T) {
	one := func(int, float64) float64 { return 1 }
	kind := record.Metric{Name: "kind_tbf", Unit: "count"}
	a := sampledRun(2, 1e9, kind, "wan/kind_tbf", one)
	b := sampledRun(2, 1e9, kind, "lan/kind_tbf", one)
	var names []string
	for _, ch := range CompareRuns(a, b).Changes {
		names = append(names, ch.Name+" "+ch.A+" "+ch.B)
	}

	want := []string{"lan/kind_tbf on router none 1", "wan/kind_tbf on router 1 none"}
	if !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}

	run, trials := quickRun(2)
	if ch := CompareRuns(a, Derive(run, trials)).Changes; len(ch) > 0 {
		t.Errorf("a probe that one run lacks: %+v", ch)
	}

	// No reading of a level lay in the window of the one, which is too short for that.
	swap := SeriesName{"router", "memory", "", "swap_total_bytes"}
	kills := SeriesName{"router", "memory", "", "oom_kills"}
	series := map[SeriesName]Sampled{kills: {Counter: true}}
	short := &Document{Sampled: []TrialSamples{{Series: series}}}
	series = map[SeriesName]Sampled{kills: {Counter: true}, swap: {}}
	long := &Document{Sampled: []TrialSamples{{Series: series}}}
	if ch := sampledChanges(short, long); len(ch) > 0 {
		t.Errorf("a level that one run did not read in time: %+v", ch)
	}
}

// TestChanceIsNoCauseOfADifference: chance, or what was not recorded, stands beside no difference that was
// found, and metrics other than goodput are counted as well.
func TestChanceIsNoCauseOfADifference(t *testing.T) {
	run, trials := quickRun(8)
	a := Derive(run, trials)
	b := Derive(run, trials)
	for i := range b.Trials {
		if v, ok := b.Trials[i].Metrics["rtt_loaded_p50_ns"]; ok {
			b.Trials[i].Metrics["rtt_loaded_p50_ns"] = 9 * v
		}
	}

	said := strings.Join(CompareRuns(a, b).Summary, "\n")
	for _, want := range []string{
		"Round trip under load (p50) in the cells that both runs measured: 7 different",
		"the cause of the difference was not recorded"} {
		if !strings.Contains(said, want) {
			t.Errorf("the summary lacks %q:\n%s", want, said)
		}
	}

	if strings.Contains(said, "chance") {
		t.Errorf("a difference is called chance:\n%s", said)
	}

	same := strings.Join(CompareRuns(a, a).Summary, "\n")
	if !strings.Contains(same, "chance does not explain") {
		t.Errorf("of runs alike: %s", same)
	}
}

// TestFewRulesAreNotRuledOut: no number of rules speaks against a rule list on a busy core, only that there
// is none, or that the load gets its rate.
func TestFewRulesAreNotRuledOut(t *testing.T) {
	of := func(file string, rules float64) *diagnosis.Diagnosis {
		o := observed(t, example{
			file: file,
			scene: func(_ *record.Run, tr *record.Trial) {
				tab := table(tr, "router", "filter")
				for i := range tab.Column("filter_rules") {
					tab.Column("filter_rules")[i] = rules
				}
			},
		})
		return diagnosis.Conclude([][]diagnosis.Candidate{diagnosis.Examine(o)})
	}
	ruledOut := func(d *diagnosis.Diagnosis) string {
		for _, x := range d.Excluded {
			if x.Class == diagnosis.RuleList {
				return x.By.Metric
			}
		}
		return ""
	}
	for _, rules := range []float64{1, 40, 200, 5000} {
		by := ruledOut(of("rules", rules))
		if by != "" {
			t.Errorf("%v rules on a busy core are ruled out by %s", rules, by)
		}
	}

	if by := ruledOut(of("rules", 0)); by != "filter_rules" {
		t.Errorf("no rules: ruled out by %q", by)
	}

	if by := ruledOut(of("rules-paced", 40)); by != metrics.Goodput {
		t.Errorf("a load that gets its rate: ruled out by %q, want that", by)
	}
}
