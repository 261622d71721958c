package analysis

import (
	"maps"
	"slices"
	"sort"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// withImports gives each trial what was seen elsewhere while it ran. The trials handed in stay as they are.
func withImports(run *record.Run, trials []record.Trial) []record.Trial {
	if len(run.Imports) == 0 {
		return trials
	}
	trials = slices.Clone(trials)
	for i := range trials {
		t := &trials[i]
		t.Nodes = maps.Clone(t.Nodes)
		for _, im := range run.Imports {
			if d, ok := during(im, t.Origin, t.Ended); ok {
				t.Nodes[im.Node] = d
			}
		}
	}
	return trials
}

// during is what of an import lies between two times, with the samples next to them; ok is false where none
// does.
func during(im record.Import, from, to int64) (d record.NodeData, ok bool) {
	d.Clock = record.Clock{OffsetBefore: im.Offset, BoundBefore: im.Bound, OffsetAfter: im.Offset,
		BoundAfter: im.Bound}
	for _, s := range im.Samples {
		if s.Table != nil {
			first := max(sort.Search(len(s.Table.T), func(i int) bool { return s.Table.T[i] >= from })-1, 0)
			last := min(sort.Search(len(s.Table.T), func(i int) bool { return s.Table.T[i] > to })+1,
				len(s.Table.T))
			if last-first < 2 || s.Table.T[last-1] < from || s.Table.T[first] > to {
				s.Table, s.Unavailable = nil, "probe "+s.Probe+" took no sample then"
			} else {
				part := &record.Table{Names: s.Table.Names, T: s.Table.T[first:last],
					V: make([][]float64, len(s.Table.V))}
				for i, v := range s.Table.V {
					part.V[i] = v[first:last]
				}
				s.Table, ok = part, true
			}
		}
		d.Samples = append(d.Samples, s)
	}
	for _, l := range im.Log {
		if l.At >= from && l.At <= to {
			d.Log = append(d.Log, l)
		}
	}
	return d, ok
}

// merged joins what is known of the same node from several sources.
func merged(environments []record.Environment) []record.Environment {
	var out []record.Environment
	for _, e := range environments {
		i := slices.IndexFunc(out, func(o record.Environment) bool { return o.Node == e.Node })
		if i < 0 {
			out = append(out, e)
			continue
		}
		o := record.Environment{Node: e.Node, Facts: map[string]string{}, Missing: map[string]string{}}
		for _, from := range []record.Environment{out[i], e} {
			maps.Copy(o.Facts, from.Facts)
			maps.Copy(o.Missing, from.Missing)
		}
		delete(o.Missing, "all else") // the later one says what is missing
		out[i] = o
	}
	return out
}

// Covered is how many trials an import has samples of.
func Covered(im record.Import, trials []record.Trial) int {
	n := 0
	for _, t := range trials {
		if _, ok := during(im, t.Origin, t.Ended); ok {
			n++
		}
	}
	return n
}
