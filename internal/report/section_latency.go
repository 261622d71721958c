package report

import (
	"math"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// latencySection: what does load do to the round-trip time?
func latencySection(v *view) Section {
	s := Section{ID: "latency", Title: "What does load do to latency?"}
	cells := v.cells(func(c *analysis.Cell) bool { return len(v.quantileCurves(c)) > 0 })
	if len(cells) == 0 {
		return s
	}
	low, high := math.Inf(1), 0.0
	for _, c := range cells {
		for _, k := range v.quantileCurves(c) {
			for _, ns := range k.NS {
				if ns > 0 {
					low, high = math.Min(low, ns), math.Max(high, ns)
				}
			}
		}
	}
	p := Panels{ID: "quantiles", Title: "Distribution of round-trip times, idle and under load",
		Caption: "Each line is one trial, from its smallest round trip at the left into the tail at the right; " +
			"both axes are logarithmic and the same in every panel. A curve ends where its number of probes no longer " +
			"carries the percentile. Lost probes are not in the curves; their share is in the table of every metric.",
		Legend: []LegendItem{{"q idle", "idle path"}, {"q loaded", "beside the load"}}}
	for _, c := range cells {
		p.Panels = append(p.Panels, Panel{ID: "quantiles-" + c.Factors.Key(), Title: c.Label, Sub: v.latencyWords(c),
			Draw: quantilePlot{Label: "Round-trip times of " + c.Label, Low: low, High: high,
				Curves: v.quantileCurves(c)}})
	}
	s.Blocks = []Block{p}
	return s
}

func (v *view) latencyWords(c *analysis.Cell) string {
	text := ""
	if x, ok := c.Metrics[idleP50]; ok {
		text = "p50 idle " + v.text(idleP50, x.Median)
	}
	if x, ok := c.Metrics[loadedP50]; ok {
		if text != "" {
			text += " → "
		}
		text += "loaded " + v.text(loadedP50, x.Median)
	}
	return text
}

// quantileCurves are those of a cell's own trials and of the idle
// measurements of the same path.
func (v *view) quantileCurves(c *analysis.Cell) []quantileCurve {
	var out []quantileCurve
	add := func(t *analysis.TrialView, kind string) {
		if t.Series == nil || len(t.Series.Quantile[kind]) == 0 {
			return
		}
		q := t.Series.Quantile[kind]
		out = append(out, quantileCurve{Class: kind, Title: "trial " + t.ID + ", " + kind,
			Levels: analysis.QuantileLevels[:min(len(q), len(analysis.QuantileLevels))], NS: q})
	}
	path := c.Factors.Path().Key()
	for i := range v.Trials {
		t := &v.Trials[i]
		if t.Grade != analysis.GradeFailed && t.Kind == record.RowIdle && t.Factors.Path().Key() == path {
			add(t, "idle")
		}
	}
	for _, t := range v.trials[c.Factors.Key()] {
		if t.Grade != analysis.GradeFailed && t.Kind != record.RowIdle {
			add(t, "idle")
			add(t, "loaded")
		}
	}
	return out
}
