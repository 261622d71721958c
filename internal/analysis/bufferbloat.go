package analysis

import (
	"maps"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// underLoad sorts the TCP cells by path, and grades each direction and the mean of up and down.
func underLoad(c *factor.Catalogue, cells []*group) []UnderLoad {
	var out []UnderLoad
	varying := varyingFactors(c, cells)
	delete(varying, string(factor.Direction))
	for _, g := range cells {
		p, ok := g.loadedPath()
		if !ok {
			continue
		}
		f := factor.Direction.With(g.factors, "")
		i := slices.IndexFunc(out, func(u UnderLoad) bool { return maps.Equal(u.Factors, f) })
		if i < 0 {
			i = len(out)
			out = append(out, UnderLoad{Factors: f, Label: labelOf(c, f, varying),
				Directions: map[string]LoadedPath{}})
		}
		out[i].Directions[factor.Direction.Of(g.factors)] = p
	}
	for i := range out {
		up, down := out[i].Directions[record.Up].AddedNs, out[i].Directions[record.Down].AddedNs
		if up != nil && down != nil {
			out[i].AddedNs = (*up + *down) / 2
			out[i].Grade = metrics.Bufferbloat(out[i].AddedNs)
		}
	}
	return out
}

// loadedPath is a cell's line; false for a cell that says nothing about a path full of TCP.
func (g *group) loadedPath() (LoadedPath, bool) {
	p := LoadedPath{Cell: g.factors}
	if factor.Protocol.Is(g.factors, factor.UDP) || factor.Engine.Is(g.factors, "flows", "requests") {
		return p, false
	}
	if v, ok := g.cell.Metrics[metrics.RTTAdded]; ok {
		p.AddedNs, p.Grade = &v.Median, metrics.Bufferbloat(v.Median)
	}
	v, ok := g.cell.Metrics[metrics.Responsiveness]
	if !ok {
		p.Why = g.cell.Missing[metrics.Responsiveness]
		return p, p.AddedNs != nil || p.Why != ""
	}
	p.RPM, p.Band = &v.Median, metrics.ResponsivenessBand(v.Median)
	p.Confidence = metrics.ConfidenceHigh
	order := []string{metrics.ConfidenceLow, metrics.ConfidenceMedium, metrics.ConfidenceHigh}
	for _, j := range g.good() {
		if j.Trial.Traffic == nil || j.Trial.Traffic.Responsiveness == nil {
			continue
		}
		if c := metrics.RPMConfidence(j.Trial); slices.Index(order, c) < slices.Index(order, p.Confidence) {
			p.Confidence = c // that of the least certain trial
		}
	}
	return p, true
}
