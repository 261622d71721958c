package comparison

import (
	"fmt"
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// VitalMetrics lists metrics that describe the service of a network to its users. If one of them is missing
// only from the second of two runs, that is a regression.
var VitalMetrics = []string{metrics.Goodput, metrics.PacketRate, metrics.ThroughputNDR, metrics.ThroughputPDR,
	metrics.ThroughputDelay, metrics.ThroughputPaced, metrics.ConnectionsNDR, metrics.ConnectionsPDR,
	metrics.CipherRate, metrics.CipherOps, metrics.LossRatio, metrics.Retransmits, metrics.RTTIdle,
	metrics.RTTLoaded}

// ComparedMetrics lists the metrics on which two runs are compared. CPU use is not among them, because a
// busier CPU may process more packets. Extreme percentiles are not vital, because they may be missing for
// lack of probes.
var ComparedMetrics = slices.Concat(VitalMetrics, []string{metrics.RTTLoadedP99, metrics.Responsiveness,
	metrics.RequestIdle, metrics.RequestLoaded, metrics.Number})

// OfPath reports whether a metric describes the idle path. Such a metric is the same for every load on the
// path.
func OfPath(metric string) bool { return metric == metrics.RTTIdle }

// Run holds the values of a run by cell or path, by metric, and by block. Path returns the path of a cell.
type Run struct {
	Values map[string]map[string]map[int]float64
	Path   func(record.Factors) record.Factors
}

// OfRuns compares two runs in the given cells, which both runs have.
func OfRuns(cells []record.Factors, first, second Run, causes []string) []Comparison {
	out := []Comparison{}
	var a, b []map[int]float64
	var tested []int
	for _, metric := range ComparedMetrics {
		seen := map[string]bool{}
		for _, f := range cells {
			key := f.Key()
			keyOfSecond := f.Key()
			if OfPath(metric) {
				key = first.Path(f).Key()
				keyOfSecond = second.Path(f).Key()
			}

			x := first.Values[key][metric]
			y := second.Values[keyOfSecond][metric]
			if seen[key] || len(x) == 0 || len(y) == 0 || metric == metrics.Goodput &&
				factor.Protocol.Is(f, factor.UDP) {
				continue // because the packet rate of UDP gives the same result
			}

			seen[key] = true
			c, x, y := unpaired(x, y)
			c.Metric = metric
			c.RunsA = len(x)
			c.RunsB = len(y)
			c.Factors = f
			c.Against = f
			c.Name = "of the first run"
			if c.Interval == statistics.IntervalOrder {
				a = append(a, x)
				b = append(b, y)
				tested = append(tested, len(out))
			}

			out = append(out, c)
		}
	}

	adjusted, test := statistics.RunsTest(a, b)
	if len(a) > 1 {
		test += fmt.Sprintf("; corrected for %d comparisons", len(a))
	}

	for k, p := range adjusted {
		out[tested[k]].PValue = p
		out[tested[k]].Test = test
	}

	for i := range out {
		c := &out[i]
		c.conclude(len(a))
		if c.Verdict == statistics.Different && len(causes) > 1 {
			c.Verdict = "confounded"
			c.Confounders = causes
		}
	}

	return out
}

// unpaired estimates how b differs from a. It also returns the values of a and b on the scale of the
// estimate: their logarithms or, if a zero leaves no ratio, the values themselves.
func unpaired(a, b map[int]float64) (Comparison, map[int]float64, map[int]float64) {
	c := Comparison{Spread: statistics.Spread{
		N:        min(len(a), len(b)),
		Interval: statistics.IntervalRange,
	}}
	scale := func(x float64) float64 { return x }
	logA, okA := logsOf(a)
	logB, okB := logsOf(b)
	if c.Difference = !okA || !okB; !c.Difference {
		a = logA
		b = logB
		scale = math.Exp
	}

	x := statistics.ByBlock(a)
	y := statistics.ByBlock(b)
	shift, low, high, level, ok := statistics.Shift(x, y)
	switch {
	case c.N >= statistics.MinInterval && ok:
		c.Level = level
		c.Interval = statistics.IntervalOrder
	case len(x) == 1 && len(y) == 1:
		low = shift
		high = shift
		c.Interval = statistics.IntervalSingle
	default:
		low = slices.Min(y) - slices.Max(x)
		high = slices.Max(y) - slices.Min(x)
	}

	c.Ratio = scale(shift)
	c.Low = scale(low)
	c.High = scale(high)
	return c, a, b
}

func logsOf(values map[int]float64) (map[int]float64, bool) {
	logs := map[int]float64{}
	for block, x := range values {
		if !(x > 0) {
			return nil, false
		}

		logs[block] = math.Log(x)
	}
	return logs, true
}
