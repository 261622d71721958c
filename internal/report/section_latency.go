package report

import (
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// latencySection shows what load does to the round-trip time.
func latencySection(v *view, s *Section) {
	s.addTables(underLoadTable(v))
	words := timedWords(v)
	if len(words) > 0 {
		s.add(Prose{Text: words})
	}

	cells := v.cells(func(c *analysis.Cell) bool { return len(v.quantileCurves(c)) > 0 })
	if len(cells) == 0 {
		return
	}

	low := math.Inf(1)
	high := 0.0
	for _, c := range cells {
		for _, k := range v.quantileCurves(c) {
			for _, ns := range k.NS {
				if ns > 0 {
					low, high = min(low, ns), max(high, ns)
				}
			}
		}
	}

	p := Panels{
		ID:    "quantiles",
		Title: "Distribution of round-trip times, idle and under load",
		Caption: "Each line is one trial, from its smallest round trip at the left into the tail " +
			"at the right; both axes are logarithmic and the same in every panel. A curve ends where its " +
			"number of probes no longer carries the percentile. Lost probes are not in the curves; their " +
			"share is in the table of every metric.",
		Legend: append([]LegendItem{{"q idle",
			"idle path"}}, v.levelLegend(cells, "q ", "beside the load")...),
	}
	for _, c := range cells {
		p.Panels = append(p.Panels, Figure{
			ID:      "quantiles-" + c.Factors.Key(),
			Title:   c.Label,
			Caption: v.latencyWords(c),
			Cells:   []*analysis.Cell{c},
			Draw: quantilePlot{
				Label:  "Round-trip times of " + c.Label,
				Low:    low,
				High:   high,
				Curves: v.quantileCurves(c),
			},
		})
	}

	s.add(p)
}

// underLoadTable shows the RTT under load, with its grade, for each path saturated with TCP, by direction.
func underLoadTable(v *view) Table {
	t := Table{
		ID:    "under-load",
		Cards: true,
		Columns: columns("Path full of TCP", "Data goes",
			"#Load adds|to the median RTT", "Bufferbloat", "#Responsiveness|round trips per minute",
			"Confidence"),
		Caption: "Bufferbloat by what the load adds to the median round trip: below 5 " +
			"ms A+, 30 ms A, 60 ms B, 200 ms C, 400 ms D, else F (DSLReports); of up and down together by " +
			"their mean. None measurable: no more than the idle path varies by itself.",
	}
	if !slices.ContainsFunc(v.UnderLoad, responsive) {
		return addedTable(v, "What the load adds to the median round trip. "+t.Caption)
	}

	t.Caption += " Responsiveness in round trips per minute: below 300 poor, 1000 fair, 6000 good, " +
		"else excellent (draft-ietf-ippm-responsiveness); only cells with the engine responsiveness " +
		"have it, and without TLS its foreign half is the mean over TCP's handshake and one exchange."
	for _, p := range v.UnderLoad {
		for _, direction := range []string{record.Up, record.Down, record.Both} {
			if w, ok := p.Directions[direction]; ok {
				t.row(v.underLoadRow(p.Label, direction, w))
			}
		}

		if p.Grade != "" {
			t.row(p.Label, "up and down, mean", v.added(p.AddedNs, p.AddedInNoise),
				TableCell{Text: p.Grade, Tone: bloatTone(p.Grade)}, none, none)
		}
	}

	t.dropEmpty()
	return t
}

// addedTable has a row for each path. It shows the RTT that the load adds in each direction, with its grade.
func addedTable(v *view, caption string) Table {
	t := Table{
		ID:      "under-load",
		Cards:   true,
		Caption: caption,
		Columns: columns("Path full of TCP", "#Up",
			"#Down", "#Both", "#Mean|of up and down"),
	}
	cell := func(ns float64, noise bool, grade string) TableCell {
		return TableCell{Text: v.added(ns, noise), Pre: "grade ", Sub: grade, Tone: bloatTone(grade)}
	}
	for _, p := range v.UnderLoad {
		cells := t.row(p.Label, none, none, none, none).Cells
		for i, direction := range []string{record.Up, record.Down, record.Both} {
			w := p.Directions[direction]
			if w.AddedNs != nil {
				cells[i+1] = cell(*w.AddedNs, w.AddedInNoise, w.Grade)
				cells[i+1].Num = v.addedNumber(w)
			}
		}

		if p.Grade != "" {
			cells[4] = cell(p.AddedNs, p.AddedInNoise, p.Grade)
		}
	}

	t.dropEmpty()
	return t
}

const noneMeasurable = "none measurable"

// added formats the median RTT that a load adds. It omits the number if noise is set, because the RTT is then
// within the noise.
func (v *view) added(ns float64, noise bool) string {
	if noise {
		return noneMeasurable
	}
	return v.text(rttAdded, ns)
}

func (v *view) addedNumber(w analysis.LoadedPath) *Number {
	if w.AddedInNoise {
		return nil
	}
	return median(w.Cell, rttAdded, *w.AddedNs)
}

// briefTables returns the tables of latency and flows that short output shows next to the results. If a run
// does not measure responsiveness, only the summary shows the grades of its latency under load.
func briefTables(v *view) []Table {
	if slices.ContainsFunc(v.UnderLoad, responsive) {
		return append(filled(underLoadTable(v)), flowTables(v)...)
	}
	return flowTables(v)
}

// responsive reports whether the plan measures the responsiveness of a path.
func responsive(p analysis.UnderLoad) bool {
	for _, w := range p.Directions {
		if w.RPM != nil || w.Why != "" {
			return true
		}
	}
	return false
}

func (v *view) underLoadRow(label, direction string, w analysis.LoadedPath) []TableCell {
	cells := []TableCell{{Text: label, Long: w.Cell.Key()}, {Text: direction}, none, none, none, none}
	if w.AddedNs != nil {
		cells[2] = TableCell{Text: v.added(*w.AddedNs, w.AddedInNoise), Num: v.addedNumber(w)}
		cells[3] = TableCell{Text: w.Grade, Tone: bloatTone(w.Grade)}
	}

	switch {
	case w.RPM != nil:
		cells[4] = TableCell{
			Text: v.text(responsiveness, *w.RPM),
			Sub:  w.Band,
			Num:  median(w.Cell, responsiveness, *w.RPM),
		}
		cells[5] = TableCell{Text: w.Confidence}
	case w.Why != "":
		cells[4] = TableCell{Text: "n/a", Long: "unavailable: " + w.Why, Tone: Quiet}
	}

	return cells
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

// timedWords describes what the round-trip times include, which depends on the probe and on the timestamps.
func timedWords(v *view) []string {
	var out []string
	for _, c := range v.all {
		for _, kind := range sortedKeys(c.Latency) {
			d := c.Latency[kind]
			for _, what := range d.Includes {
				probe := map[string]string{"echo": "UDP probes", "icmp": "ICMP probes"}[d.Probe]
				out = once(out, upperFirst(probe+", "+d.Spacing+", were timed "+what+"."))
			}
		}
	}
	return out
}

func (v *view) latencyWords(c *analysis.Cell) string {
	return joined(" → ", around("p50 idle ", v.short(c, idleP50), ""),
		around("loaded ", v.short(c, loadedP50), ""))
}

// quantileCurves returns the curves of a cell's trials and of the idle measurements of the same path.
func (v *view) quantileCurves(c *analysis.Cell) []quantileCurve {
	var out []quantileCurve
	add := func(t *analysis.TrialView, kind string) {
		if t.Series == nil || len(t.Series.Quantile[kind]) == 0 {
			return
		}

		q := t.Series.Quantile[kind]
		class := kind
		if kind == "loaded" {
			class = v.class(c.Factors)
		}

		out = append(out, quantileCurve{
			Class:  class,
			Title:  "trial " + t.ID + ", " + kind,
			Levels: analysis.QuantileLevels[:min(len(q), len(analysis.QuantileLevels))],
			NS:     q,
		})
	}
	path := v.Run.Path(c.Factors).Key()
	for i := range v.Trials {
		t := &v.Trials[i]
		if t.Grade != evidence.GradeFailed && t.Kind == record.RowIdle &&
			v.Run.Path(t.Factors).Key() == path {
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
