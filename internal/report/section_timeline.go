package report

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// timelineSection shows whether the rate is steady, and which cores are busy.
func timelineSection(v *view, s *Section) {
	p := Panels{
		ID:    "timelines",
		Title: "Goodput over time, and how busy each core was",
		Caption: "Each line is one run; the strong one is the run nearest to the median, and the " +
			"strip below shows the cores during that run. What is shaded lies outside the measured window: " +
			"warm-up before it, draining after it. Every panel has its own vertical scale, from zero." +
			sharedCores(v),
		Legend: []LegendItem{{"run-line strong c0", "run nearest to the median"},
			{"run-line c0", "other runs"}, {"h h1", "core 10 % busy"}, {"h h5", "50 %"}, {"h h10", "100 %"}},
	}
	var cells []*analysis.Cell
	for _, c := range v.all {
		if t, ok := v.timeline(c); ok {
			cells = append(cells, c)
			p.Panels = append(p.Panels, Figure{
				ID:      "time-" + c.Factors.Key(),
				Title:   c.Label,
				Caption: v.rateWords(c),
				Cells:   []*analysis.Cell{c},
				Draw:    t,
			})
		}
	}

	if len(p.Panels) > 0 {
		p.Legend = append(v.levelLegend(cells, "run-line strong ", ""), p.Legend...)
		s.add(p)
	}
}

func sharedCores(v *view) string {
	router := ""
	for _, n := range v.Nodes {
		switch {
		case n.Guest():
			router = "virtual router"
		case router == "" && n.CPUs == record.CPUsShared:
			router = "router"
		}
	}

	return around(" The cores are the host's: client, ", router, ", server and load generators share them.")
}

func (v *view) rateWords(c *analysis.Cell) string {
	text := v.short(c, rateOf(c))
	if text != "" && c.Consistency != nil {
		text += " · " + strings.ToLower(c.Consistency.Word)
	}

	return text
}

func (v *view) timeline(c *analysis.Cell) (timeline, bool) {
	var runs []*analysis.TrialView
	for _, t := range v.trials[c.Factors.Key()] {
		if t.Grade != evidence.GradeFailed && t.Kind == record.RowLoad && t.Series != nil &&
			len(t.Series.Goodput) > 0 {
			runs = append(runs, t)
		}
	}

	if len(runs) == 0 {
		return timeline{}, false
	}

	off := func(t *analysis.TrialView) float64 {
		return math.Abs(t.Metrics[goodput] - c.Metrics[goodput].Median)
	}
	typical := slices.MinFunc(runs, func(a, b *analysis.TrialView) int { return cmp.Compare(off(a), off(b)) })
	out := timeline{
		Label:  "Goodput over time of " + c.Label,
		Unit:   "bit/s",
		Class:  v.class(c.Factors),
		Window: v.Run.Method.Duration.Seconds(),
	}
	for _, t := range runs {
		out.Lines = append(out.Lines, timeLine{
			Title:  "trial " + t.ID,
			Strong: t == typical,
			T:      t.Series.T,
			V:      t.Series.Goodput,
		})
	}

	out.addCores(typical.Series)
	return out, true
}

// addCores adds the cores of all sampled nodes. If there are several nodes, the name of a core includes its
// node.
func (t *timeline) addCores(s *analysis.Series) {
	names := slices.SortedFunc(maps.Keys(s.Cores), coresByName)
	nodes := distinct(names, func(n string) string { return strings.SplitN(n, "/", 2)[0] })
	for _, n := range names {
		_, short, ok := strings.Cut(n, "/")
		if !ok || len(nodes) > 1 {
			short = strings.Replace(n, "/", " ", 1)
		}

		t.Cores = append(t.Cores, coreLine{Name: short, T: s.T, V: s.Cores[n]})
	}

	if len(nodes) > 0 {
		t.CoreName = "cores of " + strings.Join(nodes, ", ")
	}
}
