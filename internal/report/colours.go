package report

import (
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
)

// maxColours counts the colours that stay apart in both themes and for the common kinds of colour vision.
// Further levels are grey and told apart by their names.
const maxColours = 8

// lineFactor returns the factor whose levels have colours, the same on the whole page: the tunnel if it
// varies, or else the first that varies and is no number, or else the first.
func (v *view) lineFactor() string {
	cells := v.cells(loaded)
	names := v.varying(cells)
	words := filter(names, func(n string) bool {
		_, err := strconv.ParseFloat(levels(cells, n)[0], 64)
		return err != nil
	})
	for _, n := range slices.Concat([]string{string(factor.Tunnel)}, words, names) {
		l := levels(cells, n)
		if slices.Contains(names, n) && len(l) >= 2 && len(l) <= maxColours {
			return n
		}
	}

	return ""
}

// class returns the colour of a cell, c1 to c8, by its level of the line factor.
func (v *view) class(f map[string]string) string { return v.colour(v.line, f[v.line]) }

// colour returns the colour of a level, which has its own wherever it is shown.
func (v *view) colour(name, level string) string {
	key := name + "=" + level
	i := index(&v.coloured, key)
	if i >= maxColours {
		return "c0"
	}

	return "c" + strconv.Itoa(i+1)
}

// levelLegend explains the colours of cells drawn in a class; other words where they have no level.
func (v *view) levelLegend(cells []*analysis.Cell, class, words string) []LegendItem {
	l := levels(cells, v.line)
	if len(l) < 2 {
		if words == "" || len(cells) == 0 {
			return nil
		}
		return []LegendItem{{class + v.class(cells[0].Factors), words}}
	}
	return each(l, func(level string) LegendItem {
		return LegendItem{class + v.colour(v.line, level), joined(": ", words,
			v.Catalogue.Of(v.line).Words(level))}
	})
}

// tunnelClass returns the colour of a tunnel in the picture of a path: that of its level, if only one runs
// there.
func (v *view) tunnelClass(cells []*analysis.Cell) string {
	if v.line != string(factor.Tunnel) {
		return "c0"
	}

	named := without(levels(cells, v.line), factor.NoTunnel)
	if len(named) != 1 {
		return "c0" // several run over it
	}

	return v.colour(v.line, named[0])
}

// dashes tell the second and further lines of a chart apart for readers who do not see their colours.
var dashes = [...]string{"7 3", "2 3", "9 3 2 3", "4 2", "12 3", "1 3", "6 2 1 2"}

func lineDash(i int) string { return " d" + strconv.Itoa(i%(len(dashes)+1)) }

// seriesStyle gives each colour to what is drawn in it. It names colours outright, not by a variable of the
// class, because some programs that show SVG know no variables.
func seriesStyle() string {
	var b strings.Builder
	for i := range maxColours + 1 {
		c := ".c" + strconv.Itoa(i)
		colour := "var(--c" + strconv.Itoa(i) + ")"
		rules := strings.NewReplacer("@", c, "#", colour).Replace(".bar@,.point@{fill:#}" +
			".hatch@,.line@,.q@,.run-line@,.frame@,.reach@{stroke:#}.hollow@{fill:var(--surface);stroke:#}" +
			".tube@{fill:#;stroke:#}.dot@{background:#}\n")
		b.WriteString(rules)
	}

	for i, d := range dashes {
		b.WriteString(".line.d" + strconv.Itoa(i+1) + "{stroke-dasharray:" + d + "}\n")
	}

	return b.String()
}
