package analysis

import (
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// labels gives every cell a short name made of the factors that vary in the run, so that a chart's legend
// is not a wall of equal words.
func labels(c *factor.Catalogue, cells []*group) {
	varying := varyingFactors(c, cells)
	count := map[string]int{}
	for _, g := range cells {
		g.cell.Label = labelOf(c, g.factors, varying)
		count[g.cell.Label]++
	}
	for _, g := range cells {
		if count[g.cell.Label] > 1 { // cannot be told apart: say everything
			all := map[string]bool{}
			for name := range g.factors {
				all[name] = true
			}
			g.cell.Label = labelOf(c, g.factors, all)
		}
	}
}

// varyingFactors are the factors with more than one level among the cells; having none counts as a level,
// except for dependent factors.
func varyingFactors(c *factor.Catalogue, cells []*group) map[string]bool {
	first, varying := map[string]string{}, map[string]bool{}
	names := map[string]bool{}
	for _, g := range cells {
		for name := range g.factors {
			names[name] = true
		}
	}
	for name := range names {
		dependent := c.Of(name).Dependent
		for _, g := range cells {
			level, ok := g.factors[name]
			if !ok && dependent {
				continue
			}
			if known, seen := first[name]; !seen {
				first[name] = level
			} else if known != level {
				varying[name] = true
			}
		}
	}
	return varying
}

// labelOf says those factors of a cell that are to be shown: the leading ones in the order of people, by
// their bare level, then the others by name, but for those that are off or that another one says. Without
// any it says the leading ones, except the lab's shape.
func labelOf(c *factor.Catalogue, f record.Factors, show map[string]bool) string {
	names := f.Names()
	c.Sort(names)
	var leading, others, always []string
	for _, name := range names {
		switch d, level := c.Of(name), f[name]; {
		case d.Leading && level != "":
			if show[name] {
				leading = append(leading, d.Label(level))
			}
			if !d.Quiet {
				always = append(always, d.Label(level))
			}
		case show[name] && !d.Leading && level != factor.Off && !(d.Says.In(f) && show[string(d.Says)]):
			others = append(others, name)
		}
	}
	slices.Sort(others)
	for i, name := range others {
		others[i] = c.Of(name).Label(f[name])
	}
	if len(leading)+len(others) == 0 {
		leading = always
	}
	return strings.Join(append(leading, others...), " · ")
}
