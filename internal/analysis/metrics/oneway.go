package metrics

import (
	"cmp"
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// addOneWay adds the delays of the load's own packets, both directions together.
func (m *Measured) addOneWay(tr *record.Traffic) {
	var counts []record.DelayCounts
	for _, d := range tr.OneWay {
		counts = append(counts, d.Counts...)
	}
	if len(counts) == 0 {
		if tr.Engine == "xdp" {
			m.Lack("no packet's delay was told by one clock", oneWayP50, oneWayP99)
		}
		return
	}
	slices.SortFunc(counts, func(a, b record.DelayCounts) int { return cmp.Compare(a.FromNs, b.FromNs) })
	total := int64(0)
	for _, c := range counts {
		total += c.Packets
	}
	for _, q := range []struct {
		name  string
		level float64
	}{{oneWayP50, .5}, {oneWayP99, .99}} {
		if !statistics.Carries(int(total), q.level) {
			m.Lack("too few packets carried their time", q.name)
			continue
		}
		m.Set(q.name, countedQuantile(counts, total, q.level))
	}
}

// countedQuantile is the value that is not exceeded by a share of all counts, which are sorted.
func countedQuantile(counts []record.DelayCounts, total int64, level float64) float64 {
	rank, seen := int64(math.Ceil(level*float64(total))), int64(0)
	for _, c := range counts {
		if seen += c.Packets; seen >= rank {
			return float64(c.FromNs)
		}
	}
	return math.NaN()
}
