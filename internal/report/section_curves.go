package report

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
)

// curveSection shows how the result depends on a numeric setting. A curve needs at least three levels,
// because bars already show two.
func curveSection(v *view, s *Section) {
	for _, name := range v.varying(v.all) {
		d := v.Catalogue.Of(name)
		x, _, _ := strings.Cut(d.Doc, ";")
		unit, _, _ := strings.Cut(d.Unit, ",")
		if unit != "" {
			x += ", " + unit
		}

		for _, k := range []struct{ metric, y string }{{packetRate, "packets that arrived"},
			{lossRatio, "packets lost"}, {goodput, "goodput"}} {
			if f, ok := curveFigure(v, d, k.metric, x, k.y); ok {
				s.add(f)
			}
		}
	}
}

func curveFigure(v *view, d factor.Declaration, metric, xName, yName string) (Figure, bool) {
	cells := v.cells(func(c *analysis.Cell) bool {
		_, err := strconv.ParseFloat(c.Factors[d.Name], 64)
		// A factor that follows from another factor, such as the frame size from the packet size, is shown in
		// the chart of the other factor.
		return has(c, metric) && err == nil && packets(c) == (metric != goodput) && !d.Says.In(c.Factors)
	})
	names := v.lineNames(cells, d)
	order, byLine := grouped(cells, func(c *analysis.Cell) string { return v.setWords(c.Factors, names) })
	k := curves{Label: yName + " against " + xName, XName: xName, YName: yName, Unit: v.unitOf(metric)}
	var legend []LegendItem
	var used []*analysis.Cell
	left := 0
	for _, key := range order {
		// A line with fewer than three points has no shape.
		if len(byLine[key]) < 3 {
			continue
		}

		if len(k.Lines) == maxColours {
			left++
			continue
		}

		class := v.colour("line", key) // applies if several factors distinguish the lines
		switch {
		case d.Name == v.line:
			class = "c0" // each line has all the levels that have colours
		case slices.Contains(names, v.line) || len(order) == 1:
			class = v.class(byLine[key][0].Factors)
		}

		class += lineDash(len(k.Lines))
		words := key
		if key == "" && len(order) > 1 {
			words = v.unsetWords(byLine[key][0].Factors, names)
		}

		k.Lines = append(k.Lines, v.curveLine(byLine[key], d.Name, metric, class))
		legend = append(legend, LegendItem{"line " + class, words})
		used = append(used, byLine[key]...)
		for _, p := range k.Lines[len(k.Lines)-1].Points {
			k.X = append(k.X, p.X)
		}
	}

	slices.Sort(k.X)
	k.X = slices.Compact(k.X)
	id := metric + "-by-" + d.Name
	if len(legend) == 1 && legend[0].Text == "" {
		legend = nil
	}

	legend = append(legend, doubtful(used, "hollow c0")...)
	whiskers := v.intervalsOf(used, metric)
	caption := "Points: medians." + whiskerWords(whiskers) + " The line only joins what was measured."
	if left > 0 {
		caption += " " + plural(left, "further line is", "further lines are") + " not drawn."
	}

	return Figure{
		Legend:  legend,
		Cells:   used,
		Whisker: whiskers,
		ID:      id,
		Draw:    k,
		Title:   upperFirst(yName) + " by " + xName,
		Table:   v.numbers(id+"-numbers", used, metric),
		Caption: caption,
	}, len(k.Lines) > 0
}

// lineNames returns the factors that distinguish the lines of a curve. They are all factors that vary, except
// the factor on the axis and the factors that follow from it.
func (v *view) lineNames(cells []*analysis.Cell, d factor.Declaration) []string {
	all := without(v.varying(cells), d.Name)
	names := filter(all, func(n string) bool {
		other := v.Catalogue.Of(n)
		return !slices.Contains(d.Follow, factor.Name(n)) &&
			!slices.Contains(other.Follow, factor.Name(d.Name)) && string(other.Says) != d.Name
	})
	taken, _ := grouped(cells, func(c *analysis.Cell) string {
		return v.setWords(c.Factors, append([]string{d.Name}, names...))
	})
	if len(taken) < len(cells) {
		return all // an omitted factor also varies on its own
	}

	return names
}

func (v *view) curveLine(cells []*analysis.Cell, name, metric, class string) curveLine {
	l := curveLine{Class: class}
	for _, c := range cells {
		l.Points = append(l.Points, curvePoint{v.estimate(c, metric), numberOf(c.Factors[name])})
	}

	slices.SortStableFunc(l.Points, func(a, b curvePoint) int { return cmp.Compare(a.X, b.X) })
	return l
}
