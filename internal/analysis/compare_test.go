package analysis

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func comparisonsOf(d *Document, metric string) map[string]Comparison {
	out := map[string]Comparison{}
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
	got := comparisonsOf(Derive(run, trials), goodput)
	const base = "no tunnel · TCP · 1 stream · up"
	want := map[string]float64{
		"wireguard 1 off of the same without tunnel":                1.04 / 5.8,
		"wireguard 4 off of the same without tunnel":                1.1 / 10,
		"wireguard 4 off of the plan's baseline, " + base:           1.1 / 5.8,
		"none 4 off of the plan's baseline, " + base:                10 / 5.8,
		"none 1 off of the plan's baseline, " + base:                8 / 5.8,
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
		if math.Abs(c.Ratio/ratio-1) > .03 || c.N != 6 || c.Interval != IntervalOrder || c.Low > c.Ratio ||
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
		if c.Verdict != "cannot tell (n < 6)" || c.PValue != 0 || c.Interval != IntervalRange {
			t.Errorf("%s %s: verdict %q, p %v, interval %s", c.Metric, c.Name, c.Verdict, c.PValue,
				c.Interval)
		}
	}
}

func TestVerdict(t *testing.T) {
	tests := []struct {
		name string
		c    Comparison
		want string
	}{
		{"different", Comparison{N: 6, Low: .8, High: .9, PValue: .03}, "different"},
		{"not after correction", Comparison{N: 6, Low: .8, High: .9, PValue: .06}, "cannot tell"},
		{"same", Comparison{N: 6, Low: .985, High: 1.015, PValue: .5}, "same within ±2 %"},
		{"surely different and irrelevant", Comparison{N: 30, Low: 1.001, High: 1.01, PValue: 1e-6},
			"same within ±2 %"},
		{"wide", Comparison{N: 6, Low: .9, High: 1.1, PValue: .5}, "cannot tell"},
		{"few", Comparison{N: 5, Low: .1, High: .2}, "cannot tell (n < 6)"},
	}
	for _, test := range tests {
		if got := verdict(test.c, SmallestRelevant); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// Drift that both cells of a block share cancels in their ratio.
func TestPairingCancelsDrift(t *testing.T) {
	a, b := map[int]float64{}, map[int]float64{}
	for block := 1; block <= 8; block++ {
		drift := 1 - .05*float64(block)
		a[block], b[block] = 80*drift, 100*drift
	}
	delete(a, 3)
	b[4] = 0
	logs := logRatios(a, b)
	c := ratioOf(inOrder(logs, blocksOf([]map[int]float64{logs})))
	if c.N != 6 || math.Abs(c.Ratio-.8) > 1e-9 || math.Abs(c.Low-.8) > 1e-9 || math.Abs(c.High-.8) > 1e-9 {
		t.Errorf("%+v, want exactly 0.8 of six blocks", c)
	}
}

// A baseline may also be named by some factors alone.
func TestBaselineBySomeFactors(t *testing.T) {
	cells := []*compared{{factors: quickFactors()}, {factors: quickFactors("tunnel", "wireguard", "streams",
		"4")}, {factors: quickFactors("streams", "4")}}
	g, name := named(cells, cells[1].factors, record.Factors{"tunnel": "none"})
	if g != cells[2] || name != "of the same with tunnel none" {
		t.Errorf("baseline %v, %q", g, name)
	}
}

// A full-size UDP packet is smaller in a tunnel: still the same cell.
func TestBaselineOfFullPackets(t *testing.T) {
	plain := quickFactors("protocol", "udp", "packet_size", "1500")
	inside := quickFactors("protocol", "udp", "packet_size", "1420", "tunnel", "wireguard")
	small := quickFactors("protocol", "udp", "packet_size", "200", "tunnel", "wireguard")
	cells := []*compared{{factors: plain}, {factors: inside}, {factors: small}}
	var got []string
	for _, p := range pairsOf(cells, nil) {
		got = append(got, p.cell.factors["packet_size"]+" against "+p.against.factors["packet_size"])
	}
	if diff := cmp.Diff([]string{"1420 against 1500"}, got); diff != "" {
		t.Errorf("pairs (-want +got)\n%s", diff)
	}
}

func TestQueueAgainstDefault(t *testing.T) {
	plain := quickFactors()
	queue := quickFactors("queue@router.wan", "pfifo limit 100")
	cells := []*compared{{factors: plain}, {factors: queue}}
	pairs := pairsOf(cells, nil)
	if len(pairs) != 1 || pairs[0].cell != cells[1] || pairs[0].against != cells[0] ||
		pairs[0].name != "of the same with the default queue" {
		t.Errorf("pairs %+v", pairs)
	}
}

func TestCompareRuns(t *testing.T) {
	run, trials := quickRun(8)
	a := Derive(run, trials)
	s := newSynthetic(99)
	later, again := run, append([]record.Trial(nil), trials...)
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
			if x.Metric == goodput {
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
			seen[c.Factors.Path().Key()+c.Against.Path().Key()]++
		}
		if c.Factors["protocol"] == "udp" && c.Metric == goodput {
			t.Errorf("UDP goodput is compared: %s", c.Name)
		}
		if strings.Contains(c.Name, "baseline") && c.Metric != goodput && c.Metric != packetRate {
			t.Errorf("%s is compared with the plan's baseline", c.Metric)
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

// Zero is a level like any other, not the word for "nothing set".
func TestZeroIsNoBaseline(t *testing.T) {
	sack := "sysctl:net.ipv4.tcp_sack@client"
	for _, test := range []struct {
		name string
		a, b record.Factors
		want string
	}{
		{"sysctl 1 and 0", quickFactors(sack, "1"), quickFactors(sack, "0"), ""},
		{"sysctl 0 and none", quickFactors(sack, "0"), quickFactors(sack, "none"), ""},
		{"sysctl 0 and absent", quickFactors(sack, "0"), quickFactors(),
			"of the same with the default net.ipv4.tcp_sack@client"},
		{"sysctl 0 and default", quickFactors(sack, "0"), quickFactors(sack, "default"),
			"of the same with the default net.ipv4.tcp_sack@client"},
		{"firewall 100 and 0", quickFactors("firewall", "100"), quickFactors("firewall", "0"), ""},
		{"firewall 0 and off", quickFactors("firewall", "0"), quickFactors("firewall", "off"),
			"of the same without firewall rules"},
	} {
		got := ""
		for _, p := range pairsOf([]*compared{{factors: test.a}, {factors: test.b}}, nil) {
			got += p.name
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// The comparisons of one run are one family, whatever their metric.
func TestOneFamily(t *testing.T) {
	run, trials := quickRun(6)
	d := Derive(run, trials)
	for _, c := range d.Comparisons {
		if want := fmt.Sprintf("; corrected for %d comparisons",
			len(d.Comparisons)); !strings.HasSuffix(c.Test, want) {
			t.Errorf("%s %s: %q, want %q", c.Metric, c.Name, c.Test, want)
		}
	}
}

// TestComparePaired: ratios where there are any, differences where a value is zero, and no verdict on
// nothing.
func TestComparePaired(t *testing.T) {
	series := func(f func(block int) float64) map[int]float64 {
		out := map[int]float64{}
		for block := range 8 {
			out[block+1] = f(block)
		}
		return out
	}
	rising := series(func(b int) float64 { return 100 + float64(b) })
	tests := []struct {
		name       string
		a, b       map[int]float64
		ratio      float64
		difference bool
		verdict    string
	}{
		{"twice as much", rising, series(func(b int) float64 { return 200 + 2*float64(b) }), 2, false,
			"different"},
		{"the same", rising, rising, 1, false, "same within ±2 %"},
		{"more than nothing", series(func(int) float64 { return 0 }), rising, 103.5, true, "different"},
		{"nothing but zeros", series(func(int) float64 { return 0 }), series(func(int) float64 { return 0 }),
			0, true, "same"},
		{"no common block", rising, map[int]float64{}, 0, false, "cannot tell (n < 6)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, by := ComparePaired("x", tt.a, tt.b)
			if math.Abs(c.Ratio-tt.ratio) > 1e-9 || c.Difference != tt.difference ||
				c.Verdict != tt.verdict || len(by) != c.N {
				t.Errorf("got %+v of %d blocks, want %v, a difference: %v, %q", c, len(by), tt.ratio,
					tt.difference, tt.verdict)
			}
		})
	}
}
