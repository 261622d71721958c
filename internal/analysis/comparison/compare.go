// Package comparison holds results against each other and against what a plan requires: cells of one run
// paired by block, cells of two runs, and thresholds.
package comparison

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// SmallestRelevant is the smallest relative difference that anyone should care about: two results whose
// ratio lies within ±2 % are called the same.
const SmallestRelevant = 0.02

// significance is the level of a family of comparisons.
const significance = 0.05

// comparedMetrics are those on which cells are compared. Those of a path are compared once per pair of
// paths; only rates are compared with the plan's own baseline, since that may differ in many things.
var comparedMetrics = [...]struct {
	metric   string
	ofPath   bool
	baseline bool
}{
	{metric: metrics.Goodput, baseline: true},
	{metric: metrics.PacketRate, baseline: true},
	{metric: metrics.GoodputPerCPU},
	{metric: "rtt_idle_p50_ns", ofPath: true},
	{metric: "rtt_loaded_p50_ns"},
}

// BaselineLevels are the levels of factors that stand for "without".
var BaselineLevels = map[string]struct{ level, Words string }{
	"tunnel":    {"none", "of the same without tunnel"},
	"nat":       {"off", "of the same without address translation"},
	"firewall":  {"", "of the same without firewall rules"},
	"flowtable": {"off", "of the same without flow table"},
	"shape":     {"off", "of the same without shaper"},
	"policer":   {"off", "of the same without policer"},
	"queue":     {"", "of the same with the default queue"},
	"offload":   {"wire", "of the same with packets as on a wire"},
	"ip":        {"4", "of the same with IPv4"},
	"outer_ip":  {"4", "of the same with IPv4 outside"},
	"tunnels":   {"1", "of the same through one tunnel"},
	"vlan":      {"", "of the same without VLAN tag"},
	"sysctl":    {"default", "of the same with the default"},
	"cpus":      {"off", "of the same without pinning"},

	"copy":          {"a", "of the same, measured beside it"},
	"napi_threaded": {"off", "of the same received in softirqs"},
	"idle_policies": {"0", "of the same without idle policies"},
	"idle_tunnels":  {"0", "of the same without idle tunnels"},
	"link_mtu":      {"", "of the same with the default link MTU"},
}

// following are the factors whose level follows from another one's, so that a comparison of that one need
// not hold them equal.
var following = map[string][]string{
	"tunnel":   {"mtu", "outer_ip", "tunnels"},
	"outer_ip": {"mtu"},
	"link_mtu": {"mtu"},
}

// Cell is what is compared of a cell: its medians with the plan's requirements, and its numbers by block
// with those of other cells.
type Cell struct {
	Factors record.Factors
	Label   string
	Grade   string
	Reasons []evidence.Reason
	Metrics map[string]statistics.Value
	Missing map[string]string
	ByBlock func(metric string) map[int]float64
}

// pair is a cell with the cell it is compared with.
type pair struct {
	cell, against *Cell
	name          string
	baseline      bool // the plan's own
}

// pairsOf finds, for each cell, the cells that differ from it in exactly one thing: a factor at its
// baseline level, or the plan's own baseline.
func pairsOf(groups []*Cell, baseline record.Factors) []pair {
	var pairs []pair
	for _, g := range groups {
		seen := map[*Cell]bool{}
		add := func(other *Cell, name string, baseline bool) {
			if other != nil && other != g && !seen[other] {
				seen[other] = true
				pairs = append(pairs, pair{g, other, name, baseline})
			}
		}
		for _, name := range slices.Sorted(maps.Keys(g.Factors)) {
			base, ok := BaselineLevels[plainName(name)]
			if !ok || atBaseline(g.Factors[name], base.level) {
				continue
			}
			words := base.Words
			if plainName(name) == "sysctl" {
				words += " " + strings.TrimPrefix(name, "sysctl:")
			}
			add(find(groups, g.Factors, record.Factors{name: base.level}), words, false)
		}
		other, name := named(groups, g.Factors, baseline)
		add(other, name, true)
	}
	return pairs
}

// named finds the plan's own baseline: the cell that it names in full, for cells of the same protocol, or
// the cell that differs in the named factors.
func named(groups []*Cell, f, baseline record.Factors) (*Cell, string) {
	if len(baseline) == 0 {
		return nil, ""
	}
	for _, g := range groups {
		if g.Factors.Key() != baseline.Key() {
			continue
		}
		if f["protocol"] != baseline["protocol"] {
			return nil, ""
		}
		return g, "of the plan's baseline, " + g.Label
	}
	return find(groups, f, baseline), "of the same with " + describe(baseline)
}

func plainName(name string) string {
	name, _, _ = strings.Cut(name, "@")
	name, _, _ = strings.Cut(name, ":")
	return name
}

// atBaseline treats the words for "nothing set" alike. Zero is none of them, and of a sysctl nor are "off"
// and "none": those are values.
func atBaseline(level, base string) bool {
	if level == base {
		return true
	}
	if base == "default" {
		return level == ""
	}
	return base == "" && (level == "default" || level == "off" || level == "none")
}

func describe(f record.Factors) string {
	parts := make([]string, 0, len(f))
	for _, name := range slices.Sorted(maps.Keys(f)) {
		parts = append(parts, name+" "+f[name])
	}
	return strings.Join(parts, ", ")
}

// find looks for the cell that equals f except that want holds, and except for factors that follow from
// those in want.
func find(groups []*Cell, f, want record.Factors) *Cell {
	free := map[string]bool{}
	for name := range want {
		for _, n := range following[plainName(name)] {
			free[n] = true
		}
	}
	match := func(g *Cell, free map[string]bool) bool {
		for name := range union(f, g.Factors) {
			level, base := g.Factors[name], f[name]
			if w, ok := want[name]; ok {
				if !atBaseline(level, w) {
					return false
				}
				continue
			}
			if !free[name] && level != base {
				return false
			}
		}
		return true
	}
	for _, g := range groups {
		if match(g, free) {
			return g
		}
	}
	// Packets that fill the path are larger where it is: the size follows.
	if !fillsPath(f) {
		return nil
	}
	free["packet_size"] = true
	for _, g := range groups {
		if fillsPath(g.Factors) && match(g, free) {
			return g
		}
	}
	return nil
}

func fillsPath(f record.Factors) bool {
	p := metrics.PathOf(f, true)
	return f["packet_size"] == fmt.Sprint(p.MTU())
}

func union(a, b record.Factors) map[string]bool {
	names := make(map[string]bool, len(a)+len(b))
	for n := range a {
		names[n] = true
	}
	for n := range b {
		names[n] = true
	}
	return names
}

// comparePairs compares on one metric, block by block, and returns the logs of the ratios beside.
func comparePairs(pairs []pair, metric string) (out []Comparison, family []map[int]float64) {
	for _, p := range pairs {
		logs := logRatios(p.cell.ByBlock(metric), p.against.ByBlock(metric))
		if len(logs) == 0 {
			continue
		}
		c := ratioOf(statistics.InOrder(logs, statistics.BlocksOf([]map[int]float64{logs})))
		c.Metric, c.Name = metric, p.name
		c.Factors, c.Against = p.cell.Factors, p.against.Factors
		out = append(out, c)
		family = append(family, logs)
	}
	return out, family
}

// ComparePaired compares one metric of two cells of a run, b with a, by block: the ratio, or the difference
// where one of the values is not above zero. The verdict is that of this comparison alone; by holds the
// numbers by block, for FamilyTest.
func ComparePaired(metric string, a, b map[int]float64) (c Comparison, by map[int]float64) {
	by = logRatios(b, a)
	ratio := true
	for block, x := range a {
		y, ok := b[block]
		ratio = ratio && (!ok || x > 0 && y > 0)
	}
	if !ratio {
		by = map[int]float64{}
		for block, x := range a {
			if y, ok := b[block]; ok {
				by[block] = y - x
			}
		}
	}
	values := statistics.InOrder(by, statistics.BlocksOf([]map[int]float64{by}))
	if len(values) == 0 {
		return Comparison{Metric: metric, Verdict: verdict(c, SmallestRelevant)}, by
	}
	if c = ratioOf(values); !ratio {
		v := statistics.Summarise(values)
		c.Difference, c.Ratio, c.Low, c.High = true, v.Median, v.Low, v.High
	}
	c.Metric, c.PValue, c.Test = metric, statistics.SignedRank(values),
		"Wilcoxon signed-rank, exact, on paired blocks"
	c.Verdict = verdict(c, SmallestRelevant)
	return c, by
}

// judgePairs tests comparisons as one family, whatever their metrics.
func judgePairs(out []Comparison, family []map[int]float64) {
	enough, index := family[:0:0], []int(nil)
	for i, logs := range family {
		if len(logs) >= statistics.MinInterval {
			enough, index = append(enough, logs), append(index, i)
		}
	}
	adjusted, test := statistics.FamilyTest(enough)
	test += ", on paired blocks"
	if len(enough) > 1 {
		test += fmt.Sprintf("; corrected for %d comparisons", len(enough))
	}
	for k, p := range adjusted {
		out[index[k]].PValue, out[index[k]].Test = p, test
	}
	for i := range out {
		out[i].Verdict = verdict(out[i], SmallestRelevant)
	}
}

// logRatios are ln(a ÷ b) of the blocks in which both have a number above 0.
func logRatios(a, b map[int]float64) map[int]float64 {
	out := map[int]float64{}
	for block, x := range a {
		if y, ok := b[block]; ok && x > 0 && y > 0 {
			out[block] = math.Log(x / y)
		}
	}
	return out
}

// ratioOf is the median of paired ratios with its interval.
func ratioOf(logs []float64) Comparison {
	v := statistics.Summarise(logs)
	return Comparison{
		Ratio: math.Exp(v.Median), Low: math.Exp(v.Low), High: math.Exp(v.High),
		N: v.N, Interval: v.Interval, Level: v.Level,
	}
}

// verdict words a comparison. The same comes first: a difference inside the smallest relevant one is no
// difference, however sure it is.
func verdict(c Comparison, relevant float64) string {
	none := 1.0
	if c.Difference {
		none = 0
	}
	switch {
	case c.N < statistics.MinInterval:
		return fmt.Sprintf("cannot tell (n < %d)", statistics.MinInterval)
	case c.Difference && c.Low == 0 && c.High == 0:
		return "same"
	case !c.Difference && c.Low >= 1/(1+relevant) && c.High <= 1+relevant:
		return "same within ±" + unit.Significant(relevant*100, 1) + " %"
	case c.PValue <= significance && (c.Low > none || c.High < none):
		return "different"
	}
	return "cannot tell"
}

// OfCells compares all cells on all metrics, in a stable order.
func OfCells(groups []*Cell, d *record.Design) []Comparison {
	pairs := pairsOf(groups, d.Baseline)
	out := []Comparison{}
	var family []map[int]float64
	for _, m := range comparedMetrics {
		paths := map[string]bool{}
		var chosen []pair
		for _, p := range pairs {
			key := d.Path(p.cell.Factors).Key() + " / " + d.Path(p.against.Factors).Key()
			switch {
			case p.baseline && !m.baseline, m.ofPath && paths[key]:
				continue
			case m.metric == metrics.Goodput && p.cell.Factors["protocol"] == "udp":
				continue // its packet rate says the same
			}
			paths[key] = true
			chosen = append(chosen, p)
		}
		c, logs := comparePairs(chosen, m.metric)
		out, family = append(out, c...), append(family, logs...)
	}
	judgePairs(out, family)
	return out
}

// Comparison is a cell against another one, on paired blocks.
type Comparison struct {
	Metric  string         `json:"metric"`
	Factors record.Factors `json:"factors"`
	Against record.Factors `json:"against"`
	Name    string         `json:"name"` // "of the same without tunnel"
	Ratio   float64        `json:"ratio"`
	// of two runs: zeros leave no ratio; ratio, low and high are the difference instead, in the metric's
	// unit
	Difference bool    `json:"difference,omitempty"`
	Low        float64 `json:"low"`
	High       float64 `json:"high"`
	N          int     `json:"n"`
	Interval   string  `json:"interval"`
	Level      float64 `json:"level"`
	PValue     float64 `json:"p_value,omitempty"` // Wilcoxon or Mann-Whitney, see Test
	Test       string  `json:"test,omitempty"`
	// "different", "same within ±x %", "cannot tell", "confounded"
	Verdict     string   `json:"verdict"`
	Confounders []string `json:"confounders,omitempty"`
}
