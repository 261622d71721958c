// Package comparison compares results with each other and with the requirements of a plan: cells of a run
// paired by block, cells of two runs, and thresholds.
package comparison

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// comparedMetrics lists the metrics on which cells are compared. Metrics of a path are compared once per pair
// of paths. Only goodput and packet rate are compared with the plan's baseline, because the baseline may
// differ in several factors.
var comparedMetrics = [...]string{metrics.Goodput, metrics.PacketRate, metrics.GoodputPerCPU, metrics.RTTIdle,
	metrics.RTTLoaded, metrics.CipherRate, metrics.CipherOps}

// pair holds a cell and the reference cell that it is compared with.
type pair struct {
	cell, against *metrics.Cell
	name          string
	baseline      bool // the reference cell is the plan's baseline
}

// pairsOf pairs each cell with the plan's baseline, and with each cell that has the same levels except for
// one factor at its baseline level. If no cell has a setting or a guest's size at its baseline level, the
// level listed first is the baseline. Different kinds of load are not paired.
func pairsOf(design *record.Design, groups []*metrics.Cell) []pair {
	var pairs []pair
	c := design.Catalogue
	baseline := design.Baseline
	for _, g := range groups {
		seen := map[*metrics.Cell]bool{}
		add := func(other *metrics.Cell, name string, baseline bool) {
			if other != nil && other != g && !seen[other] &&
				metrics.LoadOf(other.Factors) == metrics.LoadOf(g.Factors) {
				seen[other] = true
				pairs = append(pairs, pair{g, other, name, baseline})
			}
		}
		for _, name := range g.Factors.Names() {
			without := baselineOf(design, groups, name)
			if without == nil || factor.Same(g.Factors[name], without.Level) {
				continue
			}

			add(find(c, groups, g.Factors, record.Factors{name: without.Level}), without.Words, false)
		}

		other, name, whole := named(c, groups, g.Factors, baseline)
		add(other, name, whole)
	}

	return pairs
}

// baselineOf returns the baseline for the levels of a factor, or nil if it has none.
func baselineOf(design *record.Design, groups []*metrics.Cell, name string) *factor.Without {
	d := design.Catalogue.Of(name)
	// These path factors are settings of a machine. Like other settings, they have no level that means "not
	// set".
	optional := d.Kind == factor.Path && d.Without == nil && !d.Base
	if d.Kind != factor.Setting && !optional || slices.ContainsFunc(groups, func(g *metrics.Cell) bool {
		return d.AtBaseline(g.Factors[name])
	}) {
		return d.Without
	}

	for _, f := range design.Factors {
		if f.Name == name && len(f.Levels) > 0 {
			return &factor.Without{Level: f.Levels[0], Words: "of the same with " + d.Words(f.Levels[0])}
		}
	}

	return d.Without
}

// named returns the cell that the plan names as the baseline. If the plan names all levels, that cell is the
// baseline of all cells with the same protocol, and whole is true. Otherwise, the baseline is the cell that
// differs from f only in the named factors.
func named(c *factor.Catalogue, groups []*metrics.Cell, f, baseline record.Factors) (_ *metrics.Cell,
	name string, whole bool) {
	if len(baseline) == 0 {
		return nil, "", false
	}

	for _, g := range groups {
		if g.Factors.Key() != baseline.Key() {
			continue
		}

		if factor.Protocol.Of(f) != factor.Protocol.Of(baseline) {
			return nil, "", true
		}
		return g, "of the baseline, " + g.Label, true
	}
	return find(c, groups, f, baseline), "of the same with " + describe(baseline), false
}

func describe(f record.Factors) string {
	parts := make([]string, 0, len(f))
	for _, name := range f.Names() {
		parts = append(parts, name+" "+f[name])
	}
	return strings.Join(parts, ", ")
}

// find returns the cell that has the levels in want and otherwise the levels in f. Factors that follow from
// the factors in want may have other levels.
func find(c *factor.Catalogue, groups []*metrics.Cell, f, want record.Factors) *metrics.Cell {
	free := map[string]bool{}
	for name := range want {
		for _, n := range c.Of(name).Follow {
			free[string(n)] = true
		}
	}

	match := func(g *metrics.Cell) bool {
		either := maps.Clone(f)
		maps.Copy(either, g.Factors)
		for name := range either {
			w, wanted := want[name]
			if wanted && !factor.Same(g.Factors[name], w) || !wanted && !free[name] &&
				g.Factors[name] != f[name] {
				return false
			}
		}

		return true
	}
	i := slices.IndexFunc(groups, match)
	// If packets fill the path, their size follows from the path.
	if i < 0 && fillsPath(f) {
		free[string(factor.PacketSize)] = true
		i = slices.IndexFunc(groups, func(g *metrics.Cell) bool { return fillsPath(g.Factors) && match(g) })
	}

	if i < 0 {
		return nil
	}

	return groups[i]
}

func fillsPath(f record.Factors) bool {
	return factor.PacketSize.Is(f, strconv.Itoa(metrics.PathOf(f, true).MTU()))
}

// family holds comparisons that are tested together, and the logarithms of their ratios by block.
type family struct {
	out  []Comparison
	logs []map[int]float64
}

// add adds a comparison of a with b, block by block, unless they have no block in common.
func (f *family) add(c Comparison, a, b map[int]float64) {
	logs := logRatios(a, b)
	if len(logs) == 0 {
		return
	}

	ratio := ratioOf(statistics.ByBlock(logs))
	c.Ratio = ratio.Ratio
	c.Spread = ratio.Spread
	f.out = append(f.out, c)
	f.logs = append(f.logs, logs)
}

// ComparePaired compares one metric of two cells of a run by block. It returns the ratio b ÷ a or, if a value
// is not positive, the difference. The verdict is for this comparison alone. The map by holds the logarithms
// of the ratios, or the differences, by block. It is the input of FamilyTest.
func ComparePaired(metric string, a, b map[int]float64) (c Comparison, by map[int]float64) {
	by = logRatios(b, a)
	ratio := true
	differences := map[int]float64{}
	for block, x := range a {
		if y, ok := b[block]; ok {
			ratio = ratio && x > 0 && y > 0
			differences[block] = y - x
		}
	}

	if !ratio {
		by = differences
	}

	values := statistics.ByBlock(by)
	if len(values) == 0 {
		return Comparison{Metric: metric, Verdict: statistics.TooFew()}, by
	}

	if c = ratioOf(values); !ratio {
		v := statistics.Summarise(values)
		c.Difference = true
		c.Ratio = v.Median
		c.Spread = v.Spread
	}

	c.Metric, c.PValue, c.Test = metric, statistics.SignedRank(values),
		"Wilcoxon signed-rank, exact, on paired blocks"
	c.conclude(1)
	return c, by
}

// test tests all comparisons as one family, even if they are on different metrics.
func (f *family) test() {
	p, tested, test := statistics.TestFamily(f.logs)
	test += ", on paired blocks"
	if tested > 1 {
		test += fmt.Sprintf("; corrected for %d comparisons", tested)
	}

	for i := range f.out {
		c := &f.out[i]
		if p[i] > 0 {
			c.PValue = p[i]
			c.Test = test
		}

		c.conclude(tested)
	}
}

// logRatios returns ln(a ÷ b) for the blocks in which both are positive.
func logRatios(a, b map[int]float64) map[int]float64 {
	out := map[int]float64{}
	for block, x := range a {
		if y, ok := b[block]; ok && x > 0 && y > 0 {
			out[block] = math.Log(x / y)
		}
	}
	return out
}

// ratioOf returns the median of paired ratios with its interval. logs contains the logarithms of the ratios.
func ratioOf(logs []float64) Comparison {
	v := statistics.Summarise(logs)
	c := Comparison{Spread: v.Spread, Ratio: math.Exp(v.Median)}
	c.Low = math.Exp(v.Low)
	c.High = math.Exp(v.High)
	return c
}

// conclude sets the verdict. tested is the number of comparisons in the family. Unless the verdict is
// Different, conclude also describes which ratios the data exclude.
func (c *Comparison) conclude(tested int) {
	none := 1.0
	if c.Difference {
		none = 0
	}

	c.Verdict = statistics.Verdict(none, c.N, c.Low, c.High, c.PValue)
	if c.N < statistics.MinInterval || c.Verdict == statistics.Different {
		return
	}

	c.Why = "the data exclude " + c.excluded()
	if c.Verdict == statistics.CannotTell && (c.Low > none || c.High < none) {
		c.Why += fmt.Sprintf("; p = %s", unit.Significant(c.PValue, 2))
		if tested > 1 {
			c.Why += fmt.Sprintf(", corrected for %d comparisons at once", tested)
		}
	}
}

// excluded describes the values outside of the interval.
func (c *Comparison) excluded() string {
	if c.Difference {
		return fmt.Sprintf("differences below %s and above %s", metrics.Say(c.Metric, c.Low),
			metrics.Say(c.Metric, c.High))
	}

	return "ratios below " + unit.Times(c.Low) + " and above " + unit.Times(c.High)
}

// OfCells compares all cells on all metrics, in a stable order.
func OfCells(groups []*metrics.Cell, d *record.Design) []Comparison {
	pairs := pairsOf(d, groups)
	f := family{out: []Comparison{}}
	for _, metric := range comparedMetrics {
		rate := metric == metrics.Goodput || metric == metrics.PacketRate
		paths := map[string]bool{}
		for _, p := range pairs {
			key := d.Path(p.cell.Factors).Key() + " / " + d.Path(p.against.Factors).Key()
			switch {
			case p.baseline && !rate, OfPath(metric) && paths[key]:
				continue
			case metric == metrics.Goodput && factor.Protocol.Is(p.cell.Factors, factor.UDP):
				continue // because the cell's packet rate gives the same result
			}

			paths[key] = true
			f.add(Comparison{
				Metric:  metric,
				Name:    p.name,
				Factors: p.cell.Factors,
				Against: p.against.Factors,
			}, p.cell.Blocks[metric], p.against.Blocks[metric])
		}
	}

	f.test()
	return f.out
}

// Comparison compares a cell with another cell.
type Comparison struct {
	Metric  string         `json:"metric"`
	Factors record.Factors `json:"factors"`
	Against record.Factors `json:"against"`
	Name    string         `json:"name"` // words after "a share", such as "of the same without tunnel"
	Ratio   float64        `json:"ratio"`
	// Difference reports that Ratio, Low and High are differences in the metric's unit, because a value of
	// zero allows no ratio.
	Difference bool `json:"difference,omitempty"`
	statistics.Spread
	PValue      float64  `json:"p_value,omitempty"` // see Test
	Test        string   `json:"test,omitempty"`
	Verdict     string   `json:"verdict"`       // "different", "same…", "cannot tell…" or "confounded"
	Why         string   `json:"why,omitempty"` // why the verdict is weak, and what the data exclude
	Confounders []string `json:"confounders,omitempty"`

	// A and B are the medians of two runs, with their grades.
	A      *float64 `json:"a,omitempty"`
	B      *float64 `json:"b,omitempty"`
	GradeA string   `json:"grade_a,omitempty"`
	GradeB string   `json:"grade_b,omitempty"`
	RunsA  int      `json:"runs_a,omitempty"` // trials with a number; N is the smaller of RunsA and RunsB
	RunsB  int      `json:"runs_b,omitempty"`
}
