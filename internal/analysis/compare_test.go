package analysis

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func comparisonsOf(d *Document, metric string) map[string]comparison.Comparison {
	out := map[string]comparison.Comparison{}
	for _, c := range d.Comparisons {
		if c.Metric == metric {
			out[c.Factors["tunnel"]+" "+c.Factors["streams"]+" "+c.Factors["nat"]+" "+c.Name] = c
		}
	}
	return out
}

func TestComparisonsAgainstNamedBaselines(t *testing.T) {
	run, trials := quickRun(6)
	run.Design.Baseline = quickFactors()
	got := comparisonsOf(Derive(run, trials), metrics.Goodput)
	const base = "no tunnel · TCP · 1 stream · up"
	want := map[string]float64{
		"wireguard 1 off of the same without tunnel":                1.04 / 5.8,
		"wireguard 4 off of the same without tunnel":                1.1 / 10,
		"wireguard 4 off of the baseline, " + base:                  1.1 / 5.8,
		"none 4 off of the baseline, " + base:                       10 / 5.8,
		"none 1 off of the baseline, " + base:                       8 / 5.8,
		"none 1 masquerade of the same without address translation": 5.5 / 5.8,
	}
	if len(got) != len(want) {
		t.Errorf("%d comparisons, want %d: %v", len(got), len(want), slices.Sorted(maps.Keys(got)))
	}

	for name, ratio := range want {
		c, ok := got[name]
		if !ok {
			t.Errorf("no comparison %q", name)
			continue
		}

		if math.Abs(c.Ratio/ratio-1) > .03 || c.N != 6 || c.Interval != statistics.IntervalOrder ||
			c.Low > c.Ratio ||
			c.High < c.Ratio {
			t.Errorf("%s: %+v, want ratio %.3f of 6", name, c, ratio)
		}

		if c.Verdict != "different" || c.PValue > .05 || c.Test == "" {
			t.Errorf("%s: verdict %q with p = %v (%s), want different", name, c.Verdict, c.PValue, c.Test)
		}
	}
}

func TestNoVerdictBelowSix(t *testing.T) {
	run, trials := quickRun(3)
	for _, c := range Derive(run, trials).Comparisons {
		if c.Verdict != "cannot tell (n < 6)" || c.PValue != 0 || c.Interval != statistics.IntervalRange {
			t.Errorf("%s %s: verdict %q, p %v, interval %s", c.Metric, c.Name, c.Verdict, c.PValue,
				c.Interval)
		}
	}
}

func TestCompareRuns(t *testing.T) {
	run, trials := quickRun(8)
	a := Derive(run, trials)
	s := newSynthetic(99)
	later := run
	again := append([]record.Trial(nil), trials...)
	for i := range again {
		if again[i].Row.Kind == record.RowLoad && again[i].Row.Factors["tunnel"] != "none" {
			again[i] = s.trial(again[i].Row.Factors, again[i].Row.Block, again[i].Row.Index,
				1.5e9*(1+.01*s.rng.NormFloat64()))
		}
	}

	extra := quickFactors("streams", "8")
	again = append(again, s.trial(extra, 1, 500, 1e9))

	verdicts := func(c *RunComparison) map[string]string {
		out := map[string]string{}
		for _, x := range c.Comparisons {
			if x.Metric == metrics.Goodput {
				out[x.Factors["tunnel"]+x.Factors["streams"]] += x.Verdict + ";"
			}
		}
		return out
	}
	// One recorded cause: the difference may be put down to it.
	later.Version = "2"
	c := CompareRuns(a, Derive(later, again))
	got := verdicts(c)
	if got["wireguard1"] != "different;" || !strings.Contains(got["none4"], "same within") {
		t.Errorf("verdicts %v", got)
	}

	if len(c.Changes) != 1 || c.Changes[0].Kind != "version" || len(c.OnlyB) != 1 || len(c.OnlyA) != 0 {
		t.Errorf("changes %v, only a %v, only b %v", c.Changes, c.OnlyA, c.OnlyB)
	}

	// Two causes: confounded, with the list.
	later.Design.Conditions = map[string]string{"ambient": "30 °C"}
	later.Environments = []record.Environment{{Node: "host", Facts: map[string]string{"kernel": "6.12"}},
		{Node: "router", Facts: map[string]string{"kernel": "6.12"}}}
	run.Environments = []record.Environment{{Node: "host", Facts: map[string]string{"kernel": "6.1"}},
		{Node: "router", Facts: map[string]string{"kernel": "6.1"}}}
	c = CompareRuns(Derive(run, trials), Derive(later, again))
	if got := verdicts(c); got["wireguard1"] != "confounded;" {
		t.Errorf("verdicts %v, want confounded", got)
	}

	for _, x := range c.Comparisons {
		if x.Verdict == "confounded" && len(x.Confounders) != 3 {
			t.Errorf("confounders %v, want three: version, kernel once, ambient", x.Confounders)
		}
	}

	// Few runs: no verdict.
	few, short := quickRun(3)
	for _, x := range CompareRuns(a, Derive(few, short)).Comparisons {
		if !strings.HasPrefix(x.Verdict, "cannot tell (n < 6)") || x.PValue != 0 {
			t.Errorf("%s: verdict %q with three runs", x.Metric, x.Verdict)
		}
	}
}

// What belongs to a path is compared once per pair of paths, UDP by its packet rate alone, and only rates
// against the plan's own baseline.
func TestNoComparisonTwice(t *testing.T) {
	run, trials := quickRun(3)
	run.Design.Baseline = quickFactors()
	seen := map[string]int{}
	for _, c := range Derive(run, trials).Comparisons {
		if c.Metric == "rtt_idle_p50_ns" {
			seen[run.Design.Path(c.Factors).Key()+run.Design.Path(c.Against).Key()]++
		}

		if c.Factors["protocol"] == "udp" && c.Metric == metrics.Goodput {
			t.Errorf("UDP goodput is compared: %s", c.Name)
		}

		if strings.Contains(c.Name, "baseline") && c.Metric != metrics.Goodput &&
			c.Metric != metrics.PacketRate {
			t.Errorf("%s is compared with the baseline", c.Metric)
		}
	}

	if len(seen) != 2 {
		t.Errorf("%d pairs of paths, want 2", len(seen))
	}

	for path, n := range seen {
		if n != 1 {
			t.Errorf("idle path compared %d times: %s", n, path)
		}
	}
}

// The comparisons of one run are one family, whatever their metric.
func TestOneFamily(t *testing.T) {
	run, trials := quickRun(6)
	d := Derive(run, trials)
	for _, c := range d.Comparisons {
		want := fmt.Sprintf("; corrected for %d comparisons",
			len(d.Comparisons))
		if !strings.HasSuffix(c.Test, want) {
			t.Errorf("%s %s: %q, want %q", c.Metric, c.Name, c.Test, want)
		}
	}
}
