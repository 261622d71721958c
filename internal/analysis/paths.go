package analysis

import (
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// paths diagnoses each path using only the metrics that its two ends can measure.
func paths(d *Document, show map[string]bool) []diagnosis.Path {
	var keys []string
	of := map[string][]diagnosis.Cell{}
	by := map[string]record.Factors{}
	for _, c := range d.Cells {
		f := d.Run.Path(c.Factors)
		key := f.Key()
		if by[key] == nil {
			keys = append(keys, key)
			by[key] = f
		}

		of[key] = append(of[key], OfEnds(d, &c))
	}

	var out []diagnosis.Path
	for _, key := range keys {
		p := diagnosis.Blackbox(of[key])
		if p != nil {
			p.Factors = by[key]
			p.Label = labelOf(d.Catalogue, by[key], show)
			out = append(out, *p)
		}
	}

	return out
}

// OfEnds returns a cell with only the metrics that the two ends can measure, which are the metrics of the
// path and of flows. It leaves out metrics of the nodes between the ends and of the machine that runs them.
func OfEnds(d *Document, c *Cell) diagnosis.Cell {
	seen := map[string]statistics.Value{}
	for _, m := range metrics.Metrics() {
		if v, ok := c.Metrics[m.Name]; ok && (m.Scope == record.ScopePath || m.Scope == record.ScopeFlow) {
			seen[m.Name] = v
		}
	}
	return diagnosis.Cell{
		Factors: c.Factors,
		Metrics: seen,
		Failed:  c.Failed,
		Seconds: d.Run.Method.Duration.Seconds(),
	}
}
