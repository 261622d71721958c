package report

import (
	"maps"
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// latencySection: what does load do to the round-trip time?
func latencySection(v *view) Section {
	s := Section{ID: "latency", Title: "What does load do to latency?"}
	if t, ok := underLoadTable(v); ok {
		s.Blocks = append(s.Blocks, t)
	}
	if words := timedWords(v); len(words) > 0 {
		s.Blocks = append(s.Blocks, Prose{Text: words})
	}
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
		Caption: "Each line is one trial, from its smallest round trip at the left into the tail at the " +
			"right; both axes are logarithmic and the same in every panel. A curve ends where its " +
			"number of " +
			"probes no longer carries the percentile. Lost probes are not in the curves; their share is in " +
			"the table of every metric.", Legend: []LegendItem{{"q idle", "idle path"}, {"q loaded",
			"beside the load"}}}
	for _, c := range cells {
		p.Panels = append(p.Panels, Panel{ID: "quantiles-" + c.Factors.Key(), Title: c.Label,
			Sub: v.latencyWords(c),
			Draw: quantilePlot{Label: "Round-trip times of " + c.Label, Low: low, High: high,
				Curves: v.quantileCurves(c)}})
	}
	s.Blocks = append(s.Blocks, p)
	return s
}

// underLoadTable grades each path full of TCP, by the direction of its data.
func underLoadTable(v *view) (Table, bool) {
	t := Table{ID: "under-load", Cards: true, Columns: []Column{
		{Head: "Path full of TCP"}, {Head: "Data goes"}, {Head: "Load adds", Sub: "to the median RTT",
			Numeric: true},
		{Head: "Bufferbloat"}, {Head: "Responsiveness", Sub: "round trips per minute", Numeric: true},
		{Head: "Confidence"},
	}, Caption: "Bufferbloat by what the load adds to the median round trip: below 5 ms A+, 30 ms A, 60 " +
		"ms B, 200 ms C, 400 ms D, else F (DSLReports); of up and down together by their mean. " +
		"Responsiveness in round trips per minute: below 300 poor, 1000 fair, 6000 good, else excellent " +
		"(draft-ietf-ippm-responsiveness); only cells with the engine responsiveness have it, and without " +
		"TLS its foreign half is the mean over TCP's handshake and one exchange."}
	for _, p := range v.UnderLoad {
		for _, direction := range []string{record.Up, record.Down, record.Both} {
			if w, ok := p.Directions[direction]; ok {
				t.Rows = append(t.Rows, v.underLoadRow(p.Label, direction, w))
			}
		}
		if p.Grade != "" {
			t.Rows = append(t.Rows, TableRow{Cells: []TableCell{{Text: p.Label}, {Text: "up and down, mean"},
				{Text: v.text(rttAdded, p.AddedNs)}, {Text: p.Grade, Tone: bloatTone(p.Grade)},
				{Text: "–", Tone: Quiet}, {Text: "–", Tone: Quiet}}})
		}
	}
	return t, len(t.Rows) > 0
}

// askedResponsiveness says that the run is about latency under load. Without that the short forms leave the
// grades to the summary.
func askedResponsiveness(v *view) bool {
	for _, p := range v.UnderLoad {
		for _, w := range p.Directions {
			if w.RPM != nil || w.Why != "" {
				return true
			}
		}
	}
	return false
}

func (v *view) underLoadRow(label, direction string, w analysis.LoadedPath) TableRow {
	dash := TableCell{Text: "–", Tone: Quiet}
	cells := []TableCell{{Text: label, Long: w.Cell.Key()}, {Text: direction}, dash, dash, dash, dash}
	if w.AddedNs != nil {
		cells[2] = TableCell{Text: v.text(rttAdded, *w.AddedNs),
			Num: &Number{Cell: w.Cell.Key(), Metric: rttAdded, Stat: "median", Value: *w.AddedNs}}
		cells[3] = TableCell{Text: w.Grade, Tone: bloatTone(w.Grade)}
	}
	switch {
	case w.RPM != nil:
		cells[4] = TableCell{Text: v.text(responsiveness, *w.RPM), Sub: w.Band,
			Num: &Number{Cell: w.Cell.Key(), Metric: responsiveness, Stat: "median", Value: *w.RPM}}
		cells[5] = TableCell{Text: w.Confidence}
	case w.Why != "":
		cells[4] = TableCell{Text: "n/a", Long: "unavailable: " + w.Why, Tone: Quiet}
	}
	return TableRow{Cells: cells}
}

func bloatTone(grade string) Tone {
	switch grade {
	case "A+", "A":
		return Good
	case "B", "C":
		return Doubt
	}
	return Bad
}

// timedWords says what the round trips are made of, which differs with the probe and with who stamped it.
func timedWords(v *view) []string {
	var out []string
	for i := range v.Cells {
		for _, kind := range slices.Sorted(maps.Keys(v.Cells[i].Latency)) {
			d := v.Cells[i].Latency[kind]
			for _, what := range d.Includes {
				probe := map[string]string{"echo": "UDP probes", "icmp": "ICMP probes"}[d.Probe]
				text := upperFirst(probe + ", " + d.Spacing + ", were timed " + what + ".")
				if !slices.Contains(out, text) {
					out = append(out, text)
				}
			}
		}
	}
	return out
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

// quantileCurves are those of a cell's own trials and of the idle measurements of the same path.
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
	path := v.Path(c.Factors).Key()
	for i := range v.Trials {
		t := &v.Trials[i]
		if t.Grade != evidence.GradeFailed && t.Kind == record.RowIdle && v.Path(t.Factors).Key() == path {
			add(t, "idle")
		}
	}
	for _, t := range v.trials[c.Factors.Key()] {
		if t.Grade != evidence.GradeFailed && t.Kind != record.RowIdle {
			add(t, "idle")
			add(t, "loaded")
		}
	}
	return out
}
