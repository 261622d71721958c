package analysis

import (
	"maps"
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
			g.cell.Label = labelOf(c, g.factors, nil)
		}
	}
}

// varyingFactors are the factors with more than one level among the cells; having none counts as a level,
// except for dependent factors.
func varyingFactors(c *factor.Catalogue, cells []*group) map[string]bool {
	varying, names := map[string]bool{}, record.Factors{}
	for _, g := range cells {
		maps.Copy(names, g.factors)
	}
	for name := range names {
		dependent, levels := c.Of(name).Dependent, map[string]bool{}
		for _, g := range cells {
			if level, ok := g.factors[name]; ok || !dependent {
				levels[level] = true
			}
		}
		if len(levels) > 1 {
			varying[name] = true
		}
	}
	return varying
}

// labelOf says those factors of a cell that are to be shown, nil for all: the leading ones in the order of
// people, by their bare level, then the others by name, but for those that are off or that another one says.
// Without any it says the leading ones, except the lab's shape.
func labelOf(c *factor.Catalogue, f record.Factors, show map[string]bool) string {
	shown := func(name string) bool { return show == nil || show[name] }
	names := f.Names()
	c.Sort(names)
	var leading, others, always []string
	for _, name := range names {
		switch d, level := c.Of(name), f[name]; {
		case d.Leading && level != "":
			if shown(name) {
				leading = append(leading, d.Label(level))
			}
			if !d.Quiet {
				always = append(always, d.Label(level))
			}
		case shown(name) && !d.Leading && level != factor.Off && !(d.Says.In(f) && shown(string(d.Says))):
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
