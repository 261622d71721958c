package plan

import (
	"cmp"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
	yaml "go.yaml.in/yaml/v4"
)

// expansion collects the cells of a plan, each once, in the order listed.
type expansion struct {
	method  record.Method
	base    []factor.Declaration
	given   map[string]factor.Declaration // every factor that the plan names
	seen    map[string]bool
	cells   []factor.Cell
	skipped []record.Skipped
	reasons []string // of dropped factors, in order of appearance
	dropped map[string]int
}

func (r *reader) expand(p *Plan, m *matrix, root *yaml.Node) error {
	if err := r.checkSize(m, root); err != nil {
		return err
	}
	e := &expansion{method: p.Design.Method, given: map[string]factor.Declaration{}, seen: map[string]bool{},
		dropped: map[string]int{}}
	for _, name := range r.v.Names() {
		if f, ok := r.v.Lookup(name); ok && f.Base {
			e.base = append(e.base, f)
		}
	}
	for _, c := range m.listed() {
		for _, a := range c.axes {
			e.given[a.factor.Name] = a.factor
			p.Design.Factors = addLevels(p.Design.Factors, a)
		}
		for _, given := range c.cells() {
			e.add(given, m.exclude)
		}
	}
	e.dropUnfound()
	if len(e.cells) == 0 {
		if len(e.skipped) == 0 {
			return r.fail(root, "remove an entry of exclude", "no cell is left: all are excluded")
		}
		return r.fail(root, "the first reason: "+e.skipped[0].Reason, "no cell is left: none can exist")
	}
	if trials := len(e.cells) * p.Design.Method.Runs; trials > maxTrials {
		return r.fail(root, "leave out levels or lower method.runs",
			"the plan has %d trials, at most %d are allowed", trials, maxTrials)
	}
	d := &p.Design
	d.Cells, d.Skipped, d.Hard = e.cells, e.skipped, e.hard(d.Factors)
	d.Baseline = e.cells[0].Clone()
	d.Catalogue, d.Loads = r.v.Catalogue.Labelled(r.labels), r.v.Loads(e.cells)
	if len(r.labels) > 0 {
		d.Labels = r.labels
	}
	for _, reason := range e.reasons {
		p.notes = append(p.notes, reason+" ("+unit.Count(e.dropped[reason], "combination")+")")
	}
	return nil
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

func addLevels(all []record.FactorLevels, a axis) []record.FactorLevels {
	i := slices.IndexFunc(all, func(f record.FactorLevels) bool { return f.Name == a.factor.Name })
	if i < 0 {
		return append(all, record.FactorLevels{Name: a.factor.Name, Levels: slices.Clone(a.levels)})
	}
	for _, level := range a.levels {
		if !slices.Contains(all[i].Levels, level) {
			all[i].Levels = append(all[i].Levels, level)
		}
	}
	return all
}

// add completes one combination and files it as cell, skip or duplicate.
func (e *expansion) add(given factor.Cell, exclude []combination) {
	cell := e.complete(given)
	key := cell.Key()
	if e.seen[key] {
		return
	}
	e.seen[key] = true
	if slices.ContainsFunc(exclude, func(x combination) bool { return x.matches(cell) }) {
		return
	}
	if reason := cmp.Or(e.conflict(cell), searchConflict(e.method, cell)); reason != "" {
		e.skipped = append(e.skipped, record.Skipped{Factors: cell, Reason: reason})
		return
	}
	e.cells = append(e.cells, cell)
}

// complete fills in defaults and drops what means nothing. Fixed defaults come first, because whether a
// factor means something may hang on another's default; computed ones come last, in the vocabulary's order.
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
		if ok, why := f.Applies(cell); !ok {
			if _, written := given[f.Name]; written {
				e.note(f.Name + ": " + why)
			}
			delete(cell, f.Name)
		}
	}
	for _, f := range e.base {
		if _, ok := cell[f.Name]; ok || f.Derive == nil {
			continue
		}
		if f.Applies != nil {
			if ok, _ := f.Applies(cell); !ok {
				continue
			}
		}
		if level := f.Derive(cell); level != "" {
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

func (e *expansion) conflict(cell factor.Cell) string {
	for _, f := range e.of(cell) {
		if f.Conflict != nil {
			if reason := f.Conflict(cell); reason != "" {
				return reason
			}
		}
	}
	return ""
}

// of returns the factors of a cell in a fixed order: base factors, then the others by name.
func (e *expansion) of(cell factor.Cell) []factor.Declaration {
	out, isBase := make([]factor.Declaration, 0, len(cell)), map[string]bool{}
	for _, f := range e.base {
		isBase[f.Name] = true
		if _, ok := cell[f.Name]; ok {
			out = append(out, f)
		}
	}
	for _, name := range cell.Names() {
		if f, ok := e.given[name]; ok && !isBase[name] {
			out = append(out, f)
		}
	}
	return out
}

// hard lists the hard factors, outermost first: base factors in the vocabulary's order, then the others as
// written.
func (e *expansion) hard(written []record.FactorLevels) []string {
	var names []string
	for _, f := range e.base {
		if f.Hard {
			names = append(names, f.Name)
		}
	}
	for _, w := range written {
		if f := e.given[w.Name]; f.Hard && !slices.Contains(names, w.Name) {
			names = append(names, w.Name)
		}
	}
	return names
}

// dropUnfound skips the cells whose load is a share of a rate that no cell of the plan finds.
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
		e.skipped = append(e.skipped, record.Skipped{Factors: c,
			Reason: "no cell that is the same otherwise goes as fast as it can (rate: flat, or no pacing), " +
				"so that there is no rate to take a share of"})
		return true
	})
}
