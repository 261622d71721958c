package report

import (
	"slices"
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
)

// maxColours is the number of colours that readers can tell apart in both themes, even with the common kinds
// of colour blindness. Further levels are grey and are distinguished by their names.
const maxColours = 8

// lineFactor returns the factor that the whole page shows by colour. It is the tunnel if that varies.
// Otherwise, it is the first varying factor that is not a number or, without such a factor, the first varying
// factor.
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

// class returns the CSS class of a cell's colour, c1 to c8, by its level of the line factor.
func (v *view) class(f map[string]string) string { return v.colour(v.line, f[v.line]) }

// colour returns the CSS class of a level. The class is the same on the whole page.
func (v *view) colour(name, level string) string {
	key := name + "=" + level
	i := index(&v.coloured, key)
	if i >= maxColours {
		return "c0"
	}

	return "c" + strconv.Itoa(i+1)
}

// levelLegend explains the colours of cells by their levels. The texts begin with words. If all cells have
// the same level, the only text is words. class is the first part of the CSS class.
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

// tunnelClass returns the colour of the tunnel in the picture of a path. If the page shows tunnels by colour
// and all cells have the same tunnel, it is the colour of that tunnel's level. Otherwise, it is c0.
func (v *view) tunnelClass(cells []*analysis.Cell) string {
	if v.line != string(factor.Tunnel) {
		return "c0"
	}

	named := without(levels(cells, v.line), factor.NoTunnel)
	if len(named) != 1 {
		return "c0" // no single tunnel uses the path
	}

	return v.colour(v.line, named[0])
}

// lineDash returns the CSS class for the dashes of the i-th line of a chart, for readers who cannot see the
// colours. The first line has none.
func lineDash(i int) string { return " d" + strconv.Itoa(i%8) }
