package report

import (
	"maps"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// varying lists the factors that differ between cells, in display order. A factor that only some of the cells
// have is listed, too.
func (v *view) varying(cells []*analysis.Cell) []string {
	all := record.Factors{}
	for _, c := range cells {
		maps.Copy(all, c.Factors)
	}
	return slices.DeleteFunc(v.sorted(all), func(name string) bool {
		return !slices.ContainsFunc(cells, func(c *analysis.Cell) bool {
			level, has := c.Factors[name]
			return !has || level != all[name]
		})
	})
}

// ordinary reports whether a level is the usual one, which labels omit.
func ordinary(level string) bool {
	return slices.Contains([]string{"", "-", factor.Off, "default", "auto"}, level)
}

// independent returns the names of the factors that do not depend on a given factor. A factor depends on the
// given factor if it has a single level within each level of that factor. For example, an MTU that exists
// only with a tunnel depends on the tunnel.
func independent(cells []*analysis.Cell, names []string, of string) []string {
	return filter(names, func(n string) bool {
		by := map[string]string{}
		return of == "" || slices.ContainsFunc(cells, func(c *analysis.Cell) bool {
			value := c.Factors[n]
			level := c.Factors[of]
			seen, ok := by[level]
			by[level] = value
			return ok && seen != value
		})
	})
}

// implied describes the factors that depend on a given factor. It describes them by their levels at the given
// level of that factor.
func (v *view) implied(cells []*analysis.Cell, of, level string) string {
	rest := without(v.varying(cells), of)
	names := without(rest, independent(cells, rest, of)...)
	for _, c := range cells {
		if c.Factors[of] == level {
			return around(" · ", v.setWords(c.Factors, names), "")
		}
	}

	return ""
}

// setWords describes a cell by the levels of the named factors that are set in it.
func (v *view) setWords(f record.Factors, names []string) string {
	var parts []string
	for _, n := range names {
		if level, ok := f[n]; ok && !ordinary(level) {
			parts = append(parts, v.Catalogue.Of(n).Words(level))
		}
	}
	return strings.Join(parts, " · ")
}

// unsetWords describes a cell by the named factors that are not set in it.
func (v *view) unsetWords(f record.Factors, names []string) string {
	return strings.Join(each(names, func(n string) string {
		if level := f[n]; level != "" {
			return v.Catalogue.Of(n).Words(level)
		}
		return "without " + n
	}), " · ")
}

// levels lists the levels of a factor in the order in which they occur in cells.
func levels(cells []*analysis.Cell, name string) []string {
	return distinct(cells, func(c *analysis.Cell) string { return c.Factors[name] })
}

func without(names []string, drop ...string) []string {
	return filter(names, func(n string) bool { return !slices.Contains(drop, n) })
}

// inAll returns the words that all names share, or nil if there is only one name.
func inAll(names [][]string) []string {
	if len(names) == 1 {
		return nil
	}
	return filter(names[0], func(word string) bool {
		return !slices.ContainsFunc(names, func(words []string) bool { return !slices.Contains(words, word) })
	})
}

// skippedWords describes a skipped cell by the factors in which it differs from other cells.
func (v *view) skippedWords(f record.Factors) string {
	all := slices.Clone(v.all)
	for _, k := range v.Skipped {
		all = append(all, &analysis.Cell{Cell: metrics.Cell{Factors: k.Factors}})
	}

	words := v.setWords(f, v.varying(all))
	if words != "" && len(all) > 1 {
		return words
	}

	return v.setWords(f, v.sorted(f))
}

// sorted returns the names of a cell's factors in display order.
func (v *view) sorted(f record.Factors) []string {
	names := f.Names()
	v.Catalogue.Sort(names)
	return names
}
