package comparison

import (
	"fmt"
	"math"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// VersionBlocks is the number of blocks in which two versions are measured before there is a verdict. A
// change must also be confirmed by as many further blocks.
const VersionBlocks = statistics.MinInterval

// smallestChange is the smallest relative change of a median for which the measurement is repeated.
const smallestChange = 0.01

// Versions holds a metric of a cell in two versions of a router, by block. Blocks after the first
// VersionBlocks repeat the measurement.
type Versions struct {
	Factors  record.Factors
	Metric   string
	Old, New map[int]float64
}

// OfVersions compares new versions with an old one, block by block. all has one element per version, which
// holds the cells of that version. The verdict is Different only if each of the first six blocks shows the
// change, the median change exceeds 1 %, and six further blocks all show it again. A disturbed night or a
// single spike rarely satisfies this rule, although it often passes a test on the data of one night. The
// p-value is corrected for the comparisons of all versions.
func OfVersions(all [][]Versions) [][]Comparison {
	var f family
	ends := make([]int, len(all))
	for i, version := range all {
		for _, v := range version {
			f.add(Comparison{
				Metric:  v.Metric,
				Factors: v.Factors,
				Against: v.Factors,
				Name:    "of the old version",
				A:       new(statistics.Median(statistics.ByBlock(v.Old))),
				B:       new(statistics.Median(statistics.ByBlock(v.New))),
			}, v.New, v.Old)
		}

		ends[i] = len(f.out)
	}

	f.test()
	for i := range f.out {
		f.out[i].repeated(f.logs[i])
	}

	out := make([][]Comparison, len(all))
	from := 0
	for i, to := range ends {
		out[i] = append([]Comparison{}, f.out[from:to]...)
		from = to
	}

	return out
}

// repeated replaces the verdict of the test with that of the rule in OfVersions: all of the first blocks show
// the change, and all of the later blocks show it again.
func (c *Comparison) repeated(logs map[int]float64) {
	if c.N < statistics.MinInterval || c.Verdict == statistics.SameWithin {
		return
	}

	first := map[int]float64{}
	again := map[int]float64{}
	for block, d := range logs {
		if block <= VersionBlocks {
			first[block] = d
		} else {
			again[block] = d
		}
	}

	seen := oneSided(first)
	repeat := oneSided(again)
	different := c.Verdict == statistics.Different
	c.Verdict = statistics.CannotTell
	switch {
	case seen == 0 && different && len(first) < VersionBlocks:
		c.Why = fmt.Sprintf("only %d of the first %d blocks have both numbers", len(first), VersionBlocks)
	case seen == 0 && different:
		c.Why = fmt.Sprintf("the first %d blocks do not all show it, or by 1 %% or less", len(first))
	case seen == 0:
	case len(again) < VersionBlocks:
		c.Why = fmt.Sprintf("the first %d blocks all show it; it was not repeated", len(first))
	case repeat != seen:
		c.Why = fmt.Sprintf("the first %d blocks all show it, the repeat does not: not reproducible",
			len(first))
	case different:
		c.Verdict = statistics.Different
		c.Why = ""
	default:
		c.Why = fmt.Sprintf("all blocks show it, p = %s", unit.Significant(c.PValue, 2))
	}
}

// Unrepeated reports whether the first blocks show a change that must be confirmed by further blocks.
func (v Versions) Unrepeated() bool { return oneSided(logRatios(v.New, v.Old)) != 0 }

// oneSided returns the sign of a change, or 0 if there are too few blocks, not all of them show the change,
// or its median is too small.
func oneSided(logs map[int]float64) int {
	values := statistics.ByBlock(logs)
	if len(values) < VersionBlocks || math.Abs(statistics.Median(values)) < math.Log1p(smallestChange) {
		return 0
	}

	sign := 1
	if values[0] < 0 {
		sign = -1
	}

	for _, x := range values {
		if x*float64(sign) <= 0 {
			return 0
		}
	}

	return sign
}

// VersionMetrics lists the metrics on which two versions are compared in a cell: rates, and the latency under
// load.
func VersionMetrics(f record.Factors) []string {
	rate := metrics.Goodput
	if factor.Protocol.Is(f, factor.UDP) {
		rate = metrics.PacketRate
	}
	return []string{rate, metrics.ThroughputNDR, metrics.ThroughputPDR, metrics.ConnectionsNDR,
		metrics.ConnectionsPDR, metrics.CipherRate, metrics.RTTLoaded}
}
