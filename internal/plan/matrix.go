package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v4"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// axis is a factor with its levels in a plan.
type axis struct {
	at     *yaml.Node
	factor factor.Declaration
	levels []string
}

// combination is the matrix of a plan, or one entry of "include" or "exclude", as written in the file.
type combination struct {
	at   *yaml.Node
	axes []axis
}

// matrix holds the combinations of a plan, as written in the file.
type matrix struct {
	full    combination
	include []combination
	exclude []combination
}

// maxCells is the maximum number of cells in a plan. Running more would take years.
const (
	maxCells  = 10000
	maxLabel  = 40    // maximum length of a level's label in bytes
	maxTrials = 50000 // even with the longest durations, their total fits into a time.Duration
)

func (r *reader) combinations(n *yaml.Node, what string, into *[]combination) error {
	return r.list(n, what, func(_ int, item *yaml.Node) error {
		var c combination
		err := r.combination(what, &c).read(item)
		*into = append(*into, c)
		return err
	})
}

func (r *reader) combination(what string, c *combination) field {
	return field{what, func(n *yaml.Node) error {
		c.at = n
		err := r.pairs(n, what, func(key, value *yaml.Node) error {
			f, err := r.lookup(key, key.Value)
			if err != nil {
				return err
			}

			for _, a := range c.axes {
				if a.factor.Says == factor.Name(f.Name) || f.Says == factor.Name(a.factor.Name) {
					return r.fail(key, "give one of them; frame_size is packet_size + 18 bytes of Ethernet",
						"%s and %s say the same thing", a.factor.Name, f.Name)
				}
			}

			levels, err := r.levels(value, f)
			if err != nil {
				levels = nil
			}

			c.axes = append(c.axes, axis{key, f, levels})
			return err
		})
		if err == nil && len(c.axes) == 0 {
			err = r.fail(n, "name a factor, such as streams: [1, 4]", "%s names no factor", what)
		}

		return err
	}}
}

// lookup returns the factor with the given name.
func (r *reader) lookup(n *yaml.Node, name string) (factor.Declaration, error) {
	f, ok := r.v.Lookup(name)
	if ok {
		return f, nil
	}

	plain, place := factor.Split(name)
	f, ok = r.v.Lookup(plain)
	switch {
	case !ok:
		return f, r.fail(n, r.factorHint(plain), "unknown factor %q", name)
	case f.Placed == 0 && plain != name:
		return f, r.fail(n, "write "+plain, "%s cannot be set at a place", plain)
	}

	return f, r.fail(n, r.placeHint(place), "%s: no lab has a place %q", name, place)
}

// placeHint returns a hint that lists the places in the plan's topologies.
func (r *reader) placeHint(place string) string {
	var named []string
	for _, c := range append(contentOf(valueOf(r.root, "include")), valueOf(r.root, "matrix")) {
		if c == nil {
			continue
		}

		t := valueOf(c, string(factor.Topology))
		if t != nil {
			for _, level := range append(contentOf(t), t) {
				named = append(named, level.Value)
			}
		}
	}

	here := r.v.Places(named...)
	if len(here) == 0 {
		here = r.v.Places(r.v.Shapes[0].Name)
	}

	hint := "places here: " + strings.Join(here, ", ")
	return strings.TrimSpace(check.Meant(place, here) + " " + hint)
}

func contentOf(n *yaml.Node) []*yaml.Node {
	if n == nil {
		return nil
	}
	return slices.Clone(n.Content)
}

// namedBaseline reads the levels of the baseline.
func (r *reader) namedBaseline(n *yaml.Node, d *record.Design) error {
	r.baseline = n
	d.Baseline = factor.Cell{}
	return r.pairs(n, "baseline", func(key, value *yaml.Node) error {
		f, err := r.lookup(key, key.Value)
		if err == nil {
			d.Baseline[f.Name], err = r.scalarLevel(value, f)
		}
		return err
	})
}

// levels reads one level or a list of levels, without duplicates.
func (r *reader) levels(n *yaml.Node, f factor.Declaration) ([]string, error) {
	if n.Kind != yaml.SequenceNode {
		return r.named(n, f)
	}

	var levels []string
	err := r.list(n, f.Name, func(_ int, item *yaml.Node) error {
		named, err := r.named(item, f)
		if err != nil {
			return err
		}

		for _, level := range named {
			if slices.Contains(levels, level) {
				return r.fail(item, "keep one of them", "%s has the level %s twice", f.Name, level)
			}

			levels = append(levels, level)
		}

		return nil
	})
	if err == nil && len(levels) == 0 {
		err = r.fail(n, "give at least one level", "%s has no level", f.Name)
	}

	return levels, err
}

// named reads a level, or a name that stands for a list of levels.
func (r *reader) named(n *yaml.Node, f factor.Declaration) ([]string, error) {
	if n.Kind == yaml.MappingNode && len(n.Content) > 0 &&
		slices.Contains([]string{"level", "label"}, n.Content[0].Value) {
		return r.labelled(n, f)
	}

	if set, ok := f.Sets[n.Value]; ok {
		return slices.Clone(set), nil
	}

	level, err := r.scalarLevel(n, f)
	wrong, ok := err.(*Error)
	first, _, several := strings.Cut(n.Value, ",")
	if _, bad := f.Parse(strings.TrimSpace(first)); ok && several && bad == nil {
		wrong.HintText = fmt.Sprintf("write a list: %s: [%s]", f.Name, n.Value)
	}

	return []string{level}, err
}

// labelled reads a level with a label: {level: cake bandwidth 50M, label: CAKE}.
func (r *reader) labelled(n *yaml.Node, f factor.Declaration) ([]string, error) {
	var level, label string
	err := r.object(n, f.Name, []field{
		{"level", func(n *yaml.Node) (err error) { level, err = r.scalarLevel(n, f); return err }},
		r.text("label", maxLabel, &label)})
	switch {
	case err != nil:
		return nil, err
	case level == "" || label == "":
		return nil, r.fail(n, "write {level: fq_codel, label: FQ-CoDel}, or the level alone",
			"a level of %s needs both level and label", f.Name)
	}

	if r.labels[f.Name] == nil {
		r.labels[f.Name] = map[string]string{}
	}

	for other, taken := range r.labels[f.Name] {
		switch {
		case other == level && taken != label:
			return nil, r.fail(n, "give it one label", "level %s of %s is called both %q and %q", level,
				f.Name, taken, label)
		case other != level && taken == label:
			return nil, r.fail(n, "give each its own label", "two levels of %s, %s and %s, are called %q",
				f.Name, min(level, other), max(level, other), label)
		}
	}

	r.labels[f.Name][level] = label
	return []string{level}, nil
}

// scalarLevel reads one level.
func (r *reader) scalarLevel(n *yaml.Node, f factor.Declaration) (string, error) {
	text, err := r.scalar(n, f.Name)
	if err != nil {
		return "", err
	}
	return r.level(n, f, text)
}

// level parses a level into its canonical text.
func (r *reader) level(n *yaml.Node, f factor.Declaration, text string) (string, error) {
	level, err := f.Parse(text)
	if err == nil && level == "" {
		err = errors.New("an empty level is not allowed")
	}

	if err == nil {
		return level, nil
	}

	hint := cmp.Or(check.HintOf(err), check.Meant(text, f.Levels))
	spoken := factor.Spoken(text)
	switch {
	case hint != "":
	case slices.Contains(f.Levels, spoken):
		hint = "did you mean " + spoken + "?"
	default:
		hint = r.otherFactor(f.Name, text)
	}

	return "", r.fail(n, hint, "%s: %v", f.Name, err)
}

// otherFactor returns a hint if text is a level of another factor and the names of the two factors differ by
// one or two letters. Otherwise it returns "".
func (r *reader) otherFactor(name, text string) string {
	others := slices.DeleteFunc(slices.Clone(r.v.Names()), func(other string) bool { return other == name })
	near := check.Nearest(name, others)
	other, ok := r.v.Lookup(near)
	if !ok {
		return ""
	}

	if _, err := other.Parse(text); err != nil {
		return ""
	}

	levels := strings.Join(other.Levels, ", ")
	return fmt.Sprintf("did you mean the factor %s? Its levels are %s", near, levels)
}

// size returns the number of combinations. It stops counting above maxCells, so a larger result may be too
// low.
func (c combination) size() int {
	n := 1
	for _, a := range c.axes {
		if n *= len(a.levels); n > maxCells {
			return n
		}
	}
	return n
}

// mayHave reports whether a cell of the combination can have a level. If errors hide part of the combination,
// it returns true.
func (c combination) mayHave(f factor.Declaration, level string) bool {
	for _, a := range c.axes {
		if a.factor.Name == f.Name {
			return a.levels == nil || slices.Contains(a.levels, level)
		}
	}
	return f.Derive != nil || len(c.axes) == 0 || 2*len(c.axes) < len(c.at.Content) || level == f.Default
}

// cells returns all combinations. The first factor varies slowest.
func (c combination) cells() []factor.Cell {
	cells := []factor.Cell{{}}
	for _, a := range c.axes {
		var more []factor.Cell
		for _, cell := range cells {
			for _, level := range a.levels {
				more = append(more, factor.Name(a.factor.Name).With(cell, level))
			}
		}

		cells = more
	}
	return cells
}

// matches reports whether, for every axis, the cell has one of the levels of the axis.
func (c combination) matches(cell factor.Cell) bool {
	return !slices.ContainsFunc(c.axes, func(a axis) bool {
		return !slices.Contains(a.levels, cell[a.factor.Name])
	})
}
