package plan

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
	yaml "go.yaml.in/yaml/v4"
)

// expansion collects the cells of a plan, without duplicates, in the order in which the plan lists them.
type expansion struct {
	method  record.Method
	base    []factor.Declaration
	given   map[string]factor.Declaration // all factors that the plan names
	seen    map[string]bool
	cells   []factor.Cell
	skipped []record.Skipped
	reasons []string // reasons why factors were dropped, in order of appearance
	dropped map[string]int

	exclude  []combination
	excluded []bool // whether each exclude entry matched
}

func (r *reader) expand(p *Plan, m *matrix, root *yaml.Node) error {
	if err := r.checkSize(m, root); err != nil {
		return err
	}

	e := &expansion{
		method:   p.Design.Method,
		given:    map[string]factor.Declaration{},
		seen:     map[string]bool{},
		dropped:  map[string]int{},
		exclude:  m.exclude,
		excluded: make([]bool, len(m.exclude)),
	}
	for _, name := range r.v.Names() {
		if f, ok := r.v.Lookup(name); ok && f.Base {
			e.base = append(e.base, f)
		}
	}

	for _, c := range m.listed() {
		for _, a := range c.axes {
			e.given[a.factor.Name] = a.factor
			p.Design.Factors = AddLevels(p.Design.Factors, a.factor.Name, a.levels...)
		}

		for _, given := range c.cells() {
			e.add(given)
		}
	}

	e.dropUnfound()
	if len(e.cells) == 0 {
		if len(e.skipped) == 0 {
			return r.fail(root, "remove an entry of exclude", "no cell is left: all are excluded")
		}
		return r.fail(root, "the first reason: "+e.skipped[0].Reason, "no cell is left: all are impossible")
	}

	trials := len(e.cells) * p.Design.Method.Runs
	if trials > maxTrials {
		return r.fail(root, "leave out levels or lower method.runs",
			"the plan has %d trials, at most %d are allowed", trials, maxTrials)
	}

	d := &p.Design
	d.Cells, d.Skipped, d.Hard = e.cells, e.skipped, e.hard(d.Factors)
	d.Catalogue, d.Loads = r.v.Catalogue.Labelled(r.labels), r.v.Loads(e.cells)
	if len(r.labels) > 0 {
		d.Labels = r.labels
	}

	if r.baseline == nil {
		d.Baseline = e.baseline()
	}

	for _, reason := range e.reasons {
		p.notes = append(p.notes, reason+" ("+unit.Count(e.dropped[reason], "combination")+")")
	}

	link := d.Conditions[record.LinkCondition]
	if link != "" {
		if rate, err := unit.ParseBitrate(link); err != nil || rate <= 0 {
			p.notes = append(p.notes, "condition "+record.LinkCondition+": "+strconv.Quote(link)+
				" is no bit rate, such as 1G: it bounds nothing")
		}
	}

	r.checkUse(p, m, e)
	return nil
}

// combinations returns all cells, including skipped ones.
func (p *Plan) combinations() []factor.Cell {
	all := slices.Clone(p.Design.Cells)
	for _, s := range p.Design.Skipped {
		all = append(all, s.Factors)
	}
	return all
}

// checkUse notes an error for each part of a plan that has no effect: a place that no topology has, an
// exclude that matches nothing, or a baseline that is not a cell.
func (r *reader) checkUse(p *Plan, m *matrix, e *expansion) {
	var topologies []string
	all := p.combinations()
	for _, c := range all {
		topologies = append(topologies, factor.Topology.Of(c))
	}

	here := append(r.v.Places(topologies...), "", factor.Host)
	changed := slices.ContainsFunc(p.Design.Set, func(set string) bool {
		return strings.HasPrefix(set, "matrix.") || strings.HasPrefix(set, "include.")
	})
	for _, c := range m.listed() {
		for _, a := range c.axes {
			name := a.factor.Name
			_, place := factor.Split(name)
			used := func(c factor.Cell) bool { _, ok := c[name]; return ok }
			if !slices.Contains(here, place) {
				r.note(r.fail(a.at, r.placeHint(place), "%s: no topology of the plan has a place %q",
					name, place))
			} else if why := e.whyDropped(name); why != "" && !changed && !slices.ContainsFunc(all, used) {
				r.note(r.fail(a.at, "leave it out, or add the levels that it depends on",
					"%s has no effect in any cell: %s", name, why))
			}
		}
	}

	for i, x := range m.exclude {
		switch {
		case e.excluded[i]:
		case changed: // a --set may have removed what the entry matches
			p.notes = append(p.notes, "exclude: entry "+strconv.Itoa(i+1)+" matches nothing")
		default:
			r.note(r.fail(x.at, seeCells,
				"this entry of exclude matches nothing"))
		}
	}

	if r.baseline != nil && !slices.ContainsFunc(all, func(c factor.Cell) bool {
		return c.Meets(p.Design.Baseline)
	}) {
		r.note(r.fail(r.baseline, seeCells,
			"no cell has the baseline's levels"))
	}
}

// baseline returns the cell in which the fewest factors differ from their own baseline. If there is a tie, it
// returns the first such cell.
func (e *expansion) baseline() factor.Cell {
	fewest := len(e.cells[0]) + 1
	best := e.cells[0]
	for _, c := range e.cells {
		off := 0
		for _, f := range e.of(c) {
			if f.Without != nil && !f.AtBaseline(c[f.Name]) {
				off++
			}
		}

		if off < fewest {
			fewest, best = off, c
		}
	}

	return best.Clone()
}

func (m *matrix) listed() []combination {
	if m.full.at == nil {
		return m.include
	}
	return slices.Concat([]combination{m.full}, m.include)
}

func (r *reader) checkSize(m *matrix, root *yaml.Node) error {
	total := 0
	for _, c := range m.listed() {
		if total += c.size(); total > maxCells {
			return r.fail(c.at, "leave out levels, or list single cells under include",
				"the plan has more than %d cells", maxCells)
		}
	}

	if total == 0 {
		return r.fail(root, "add matrix or include, such as matrix: {streams: [1, 4]}",
			"the plan has no cell")
	}

	return nil
}

// AddLevels adds the levels of a factor that the list does not contain yet.
func AddLevels(all []record.FactorLevels, name string, levels ...string) []record.FactorLevels {
	i := slices.IndexFunc(all, func(f record.FactorLevels) bool { return f.Name == name })
	if i < 0 {
		i = len(all)
		all = append(all, record.FactorLevels{Name: name})
	}

	for _, level := range levels {
		if !slices.Contains(all[i].Levels, level) {
			all[i].Levels = append(all[i].Levels, level)
		}
	}

	return all
}

// add completes a combination, and adds it to the cells or to the skipped cells unless it is a duplicate.
func (e *expansion) add(given factor.Cell) {
	cell := e.complete(given)
	key := cell.Key()
	if e.seen[key] {
		return
	}

	e.seen[key] = true
	out := false
	for i, x := range e.exclude {
		if x.matches(cell) {
			out, e.excluded[i] = true, true
		}
	}

	if out {
		return
	}

	reason := cmp.Or(e.conflict(cell), searchConflict(e.method, cell))
	if reason != "" {
		e.skipped = append(e.skipped, record.Skipped{Factors: cell, Reason: reason})
		return
	}

	e.cells = append(e.cells, cell)
}

// complete fills in defaults and drops factors that have no meaning in the cell. Fixed defaults come first,
// because the meaning of a factor may depend on the default of another factor. Computed defaults come last,
// in the order of the vocabulary.
func (e *expansion) complete(given factor.Cell) factor.Cell {
	cell := given.Clone()
	for _, f := range e.base {
		if _, ok := cell[f.Name]; !ok && f.Derive == nil {
			cell[f.Name] = f.Default
		}
	}

	for _, f := range e.of(cell) {
		if f.Applies == nil {
			continue
		}

		ok, why := f.Applies(cell)
		if _, written := given[f.Name]; !ok && written {
			e.note(f.Name + ": " + why)
		}

		if !ok {
			delete(cell, f.Name)
		}
	}

	for _, f := range e.base {
		if _, ok := cell[f.Name]; ok || f.Derive == nil {
			continue
		}

		if f.Applies != nil {
			ok, _ := f.Applies(cell)
			if !ok {
				continue
			}
		}

		level := f.Derive(cell)
		if level != "" {
			cell[f.Name] = level
		}
	}

	return cell
}

func (e *expansion) note(reason string) {
	if e.dropped[reason] == 0 {
		e.reasons = append(e.reasons, reason)
	}

	e.dropped[reason]++
}

// whyDropped returns the first reason for which a factor was dropped, or "".
func (e *expansion) whyDropped(name string) string {
	for _, reason := range e.reasons {
		if why, ok := strings.CutPrefix(reason, name+": "); ok {
			return why
		}
	}
	return ""
}

func (e *expansion) conflict(cell factor.Cell) string {
	for _, f := range e.of(cell) {
		if f.Conflict != nil {
			reason := f.Conflict(cell)
			if reason != "" {
				return reason
			}
		}
	}
	return ""
}

// of returns the factors of a cell: base factors, then the others by name.
func (e *expansion) of(cell factor.Cell) []factor.Declaration {
	out := make([]factor.Declaration, 0, len(cell))
	for _, f := range e.base {
		if _, ok := cell[f.Name]; ok {
			out = append(out, f)
		}
	}

	for _, name := range cell.Names() {
		if f, ok := e.given[name]; ok && !f.Base {
			out = append(out, f)
		}
	}

	return out
}

// hard lists the hard factors, outermost first: base factors in the order of the vocabulary, then the others
// in the order in which they are written.
func (e *expansion) hard(written []record.FactorLevels) []string {
	var names []string
	for _, f := range e.base {
		if f.Hard {
			names = append(names, f.Name)
		}
	}

	for _, w := range written {
		f := e.given[w.Name]
		if f.Hard && !slices.Contains(names, w.Name) {
			names = append(names, w.Name)
		}
	}

	return names
}

// dropUnfound skips the cells whose load is a share of a rate if no cell of the plan finds that rate.
func (e *expansion) dropUnfound() {
	have := map[string]bool{}
	for _, c := range e.cells {
		have[c.Key()] = true
	}

	e.cells = slices.DeleteFunc(e.cells, func(c factor.Cell) bool {
		found, ok := factor.FoundOf(c)
		if !ok || have[found.Of.Key()] {
			return false
		}

		e.skipped = append(e.skipped, record.Skipped{
			Factors: c,
			Reason: "no cell that is otherwise the same sends at full rate (rate: flat, or no pacing), so " +
				"there is no rate to take a share of",
		})
		return true
	})
}
