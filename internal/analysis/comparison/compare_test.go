package comparison

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func TestVerdict(t *testing.T) {
	tests := []struct {
		name string
		c    Comparison
		want string
	}{
		{"different", Comparison{Spread: statistics.Spread{N: 6, Low: .8, High: .9}, PValue: .03},
			"different"},
		{"not after correction", Comparison{
			Spread: statistics.Spread{N: 6, Low: .8, High: .9},
			PValue: .06,
		}, "cannot tell"},
		{"same", Comparison{Spread: statistics.Spread{N: 6, Low: .985, High: 1.015}, PValue: .5},
			"same within ±2 %"},
		{"surely different and irrelevant", Comparison{
			Spread: statistics.Spread{
				N:    30,
				Low:  1.001,
				High: 1.01,
			},
			PValue: 1e-6,
		},
			"same within ±2 %"},
		{"wide", Comparison{Spread: statistics.Spread{N: 6, Low: .9, High: 1.1}, PValue: .5}, "cannot tell"},
		{"few", Comparison{Spread: statistics.Spread{N: 5, Low: .1, High: .2}}, "cannot tell (n < 6)"},
	}
	for _, test := range tests {
		if test.c.conclude(1); test.c.Verdict != test.want {
			t.Errorf("%s: %q, want %q", test.name, test.c.Verdict, test.want)
		}
	}
}

// Drift that both cells of a block share cancels in their ratio.
func TestPairingCancelsDrift(t *testing.T) {
	a := map[int]float64{}
	b := map[int]float64{}
	for block := 1; block <= 8; block++ {
		drift := 1 - .05*float64(block)
		a[block] = 80 * drift
		b[block] = 100 * drift
	}

	delete(a, 3)
	b[4] = 0
	logs := logRatios(a, b)
	c := ratioOf(statistics.InOrder(logs, statistics.BlocksOf([]map[int]float64{logs})))
	if c.N != 6 || math.Abs(c.Ratio-.8) > 1e-9 || math.Abs(c.Low-.8) > 1e-9 || math.Abs(c.High-.8) > 1e-9 {
		t.Errorf("%+v, want exactly 0.8 of six blocks", c)
	}
}

// A baseline may also be named by some factors alone.
func TestBaselineBySomeFactors(t *testing.T) {
	cells := []*metrics.Cell{{Factors: quickFactors()}, {Factors: quickFactors("tunnel", "wireguard",
		"streams",
		"4")}, {Factors: quickFactors("streams", "4")}}
	g, name, _ := named(declaredFactors(), cells, cells[1].Factors, record.Factors{"tunnel": "none"})
	if g != cells[2] || name != "of the same with tunnel none" {
		t.Errorf("baseline %v, %q", g, name)
	}
}

// A full-size UDP packet is smaller in a tunnel: still the same cell.
func TestBaselineOfFullPackets(t *testing.T) {
	plain := quickFactors("protocol", "udp", "packet_size", "1500")
	inside := quickFactors("protocol", "udp", "packet_size", "1420", "tunnel", "wireguard")
	small := quickFactors("protocol", "udp", "packet_size", "200", "tunnel", "wireguard")
	cells := []*metrics.Cell{{Factors: plain}, {Factors: inside}, {Factors: small}}
	var got []string
	for _, p := range pairsOf(&record.Design{Catalogue: declaredFactors()}, cells) {
		got = append(got, p.cell.Factors["packet_size"]+" against "+p.against.Factors["packet_size"])
	}

	diff := cmp.Diff([]string{"1420 against 1500"}, got)
	if diff != "" {
		t.Errorf("pairs (-want +got)\n%s", diff)
	}
}

func TestQueueAgainstDefault(t *testing.T) {
	plain := quickFactors()
	queue := quickFactors("queue@router.wan", "pfifo limit 100")
	cells := []*metrics.Cell{{Factors: plain}, {Factors: queue}}
	pairs := pairsOf(&record.Design{Catalogue: declaredFactors()}, cells)
	if len(pairs) != 1 || pairs[0].cell != cells[1] || pairs[0].against != cells[0] ||
		pairs[0].name != "of the same with the default queue" {
		t.Errorf("pairs %+v", pairs)
	}
}

// TestSettingsWithoutBaseline: a setting that no cell has at its baseline level is compared with the level
// listed first, and a baseline of some factors is compared on all metrics.
func TestSettingsWithoutBaseline(t *testing.T) {
	c := &factor.Catalogue{Factors: append(declaredFactors().Factors, factor.Declaration{
		Name:    "table",
		Without: &factor.Without{Words: "of the same with the default table"},
	})}
	d := &record.Design{
		Catalogue: c,
		Factors: []record.FactorLevels{{
			Name:   "table",
			Levels: []string{"64", "9", "7"},
		}},
	}
	var cells []*metrics.Cell
	for _, level := range []string{"9", "64", "7"} {
		cells = append(cells, &metrics.Cell{Factors: quickFactors("table", level)})
	}

	said := func() (out []string) {
		for _, p := range pairsOf(d, cells) {
			out = append(out, p.cell.Factors["table"]+": "+p.name)
			if p.baseline {
				t.Errorf("%s: compared on rates alone", p.name)
			}
		}
		return out
	}
	want := []string{"9: of the same with table 64", "7: of the same with table 64"}
	if diff := cmp.Diff(want, said()); diff != "" {
		t.Errorf("pairs (-want +got)\n%s", diff)
	}

	cells = append(cells, &metrics.Cell{Factors: quickFactors()})
	want = []string{"9: of the same with the default table", "64: of the same with the default table",
		"7: of the same with the default table"}
	if diff := cmp.Diff(want, said()); diff != "" {
		t.Errorf("pairs with the default (-want +got)\n%s", diff)
	}

	cells = cells[:3]
	d.Baseline = record.Factors{"table": "7"}
	want = []string{"9: of the same with table 64", "9: of the same with table 7",
		"64: of the same with table 7", "7: of the same with table 64"}
	if diff := cmp.Diff(want, said()); diff != "" {
		t.Errorf("pairs with a named baseline (-want +got)\n%s", diff)
	}
}

// TestSizesOfGuests: they have no level that stands for the default, and are compared with the one listed
// first; the topology, of which each cell has one, is not.
func TestSizesOfGuests(t *testing.T) {
	for name, levels := range map[string][]string{"vcpus": {"1", "2", "4"}, "memory": {"512", "256"},
		"topology": {"forward", "direct"}} {
		d := &record.Design{
			Catalogue: declaredFactors(),
			Factors: []record.FactorLevels{{
				Name:   name,
				Levels: levels,
			}},
		}
		var cells []*metrics.Cell
		for _, level := range levels {
			cells = append(cells, &metrics.Cell{Factors: quickFactors(name, level)})
		}

		want := len(levels) - 1
		if name == "topology" {
			want = 0
		}

		pairs := pairsOf(d, cells)
		if len(pairs) != want {
			t.Errorf("%s: got %d pairs, want %d", name, len(pairs), want)
		}

		for _, p := range pairs {
			if p.against != cells[0] || !strings.HasPrefix(p.name, "of the same with "+levels[0]) {
				t.Errorf("%s: got a pair %+v, want it against %s", name, p, levels[0])
			}
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
		for _, p := range pairsOf(&record.Design{Catalogue: declaredFactors()},
			[]*metrics.Cell{{Factors: test.a}, {Factors: test.b}}) {
			got += p.name
		}

		if got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
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

// A paired comparison is wrong about the same set-up in at most 5 % of cases and sees a drift that both
// share as no difference.
func TestPairedVerdicts(t *testing.T) {
	rng := source(60)
	different := 0
	for range draws {
		logs := map[int]float64{}
		var values []float64
		for b := range 8 {
			logs[b] = .05 * rng.NormFloat64()
			values = append(values, logs[b])
		}

		c := ratioOf(values)
		p, _ := statistics.FamilyTest([]map[int]float64{logs})
		c.PValue = p[0]
		if c.conclude(1); c.Verdict == "different" {
			different++
		}
	}

	atMost(t, "false differences", float64(different)/draws, .05)
}
