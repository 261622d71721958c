package analysis

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/model"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// handFacts lists the facts about a router that people change between runs, and the factor that each fact
// becomes. If several facts become the same factor, the first one that differs between the runs is used.
var handFacts = [...]struct{ fact, factor string }{
	{"cpu_frequency_set", "clock"}, // as reported by RouterOS
	{"governor", "governor"},
	{"product", "device"},
	{"firmware", "firmware"},
	{"kernel", "kernel"},
}

// EffectsOfRuns returns the effects of factors over several runs. A change that was made by hand between the
// runs counts as a factor, like the factors that vary within runs. labels maps such a factor to its level in
// each run. Without labels, the factors are the conditions and the facts of the router in which the runs
// differ. If several runs have the same levels, their blocks are combined.
//
// Runs are made at different times. Time does not affect a ratio within runs, such as the ratio of two
// queues, nor the interaction of a queue with a clock. It does affect a ratio between runs. Each run
// therefore counts only once for such a ratio.
//
// EffectsOfRuns returns an error if labels lacks a level for a run, or names a factor that varies within a
// run.
func EffectsOfRuns(docs []*Document, labels map[string][]string) (model.Effects, error) {
	for _, name := range keys(labels) {
		if len(labels[name]) != len(docs) {
			return model.Effects{}, fmt.Errorf("%s has %d levels for %d runs", name, len(labels[name]),
				len(docs))
		}

		for _, d := range docs {
			if levels := d.levelsOf(name); len(levels) > 1 {
				return model.Effects{}, fmt.Errorf("%s varies within run %s: %s", name, d.Run.ID,
					strings.Join(levels, ", "))
			}
		}
	}

	var used []string
	if len(labels) == 0 {
		labels, used = byHand(docs)
	}

	var runs []runOfEffects
	for i, d := range docs {
		levels := record.Factors{}
		for name, all := range labels {
			levels[name] = all[i]
		}

		runs = append(runs, runOfEffects{Document: d, values: numbers(d), levels: levels})
	}

	e := effectsOf(runs, math.MaxInt)
	for _, r := range runs {
		e.Runs = append(e.Runs, model.EffectRun{Run: r.Run.ID, Levels: r.levels})
	}

	e.Differs = otherChanges(docs, used)
	return e, nil
}

// levelsOf returns the levels of a factor in the cells of a run.
func (d *Document) levelsOf(name string) (levels []string) {
	for _, c := range d.Cells {
		levels = once(levels, c.Factors[name])
	}
	return levels
}

// byHand returns the conditions and the facts of the tested router that all runs record, that differ between
// the runs, and that do not vary within a run. labels contains their levels. used lists their names in the
// form that comparisons use for changes.
func byHand(docs []*Document) (labels map[string][]string, used []string) {
	labels = map[string][]string{}
	add := func(name string, change string, of func(*Document) string) {
		var levels []string
		for _, d := range docs {
			level := of(d)
			if level == "" || len(d.levelsOf(name)) > 0 {
				return
			}

			levels = append(levels, level)
		}

		if labels[name] == nil && len(slices.Compact(slices.Sorted(slices.Values(levels)))) > 1 {
			labels[name] = levels
			used = append(used, change)
		}
	}
	for _, d := range docs {
		for _, name := range keys(d.Conditions) {
			add(name, name, func(d *Document) string { return d.Conditions[name] })
		}
	}

	for _, node := range docs[0].routers() {
		for _, f := range handFacts {
			if f.fact == "kernel" && labels["firmware"] != nil { // new firmware has another kernel anyway
				continue
			}

			add(f.factor, f.fact+" on "+node, func(d *Document) string { return d.factsOf(node)[f.fact] })
		}

		if slices.ContainsFunc(docs, (*Document).setsQueues) {
			continue // the run replaced these queues before any traffic
		}

		first := docs[0].queuesOf(node)
		for _, name := range keys(first) {
			device := strings.TrimPrefix(name, "queues of ")
			device = strings.TrimSuffix(strings.TrimPrefix(device, "device:"), ":queue")
			add("queue of "+device, name+" on "+node, func(d *Document) string {
				return d.queuesOf(node)[name]
			})
		}
	}

	return labels, used
}

// setsQueues reports whether the run sets queues.
func (d *Document) setsQueues() bool {
	for _, c := range d.Cells {
		for range factor.Queue.Each(c.Factors) {
			return true
		}
	}
	return false
}

// queuesOf returns the queues that a run found on a node, by the names of their facts. They were read by a
// driver or are in the agent's inventory.
func (d *Document) queuesOf(node string) map[string]string {
	out := map[string]string{}
	for _, e := range d.Environment {
		if e.Node != node {
			continue
		}

		for name, queue := range e.Facts {
			if strings.HasPrefix(name, "device:") && strings.HasSuffix(name, ":queue") {
				out[name] = queue
			}
		}

		if e.Inventory == nil {
			continue
		}

		none := func(string) bool { return false }
		for name, text := range inventoryFacts(e.Inventory, none)["devices"] {
			if strings.HasPrefix(name, "queues of ") {
				out[name] = text
			}
		}
	}
	return out
}

// routers returns the names of the nodes under test.
func (d *Document) routers() (names []string) {
	for _, t := range d.Topologies {
		for _, n := range t.Nodes {
			if n.Router {
				names = once(names, n.Name)
			}
		}
	}
	return names
}

// factsOf returns the recorded facts about a node.
func (d *Document) factsOf(node string) map[string]string {
	for _, e := range d.Environment {
		if e.Node == node {
			return e.Facts
		}
	}
	return nil
}

// otherChanges lists the differences between the first run and the others, except the named changes.
func otherChanges(docs []*Document, used []string) (out []string) {
	for _, d := range docs[1:] {
		rest := slices.DeleteFunc(changes(docs[0], d), func(c Change) bool {
			return slices.ContainsFunc(used, func(name string) bool {
				return c.Name == name || strings.HasPrefix(c.Name, name+", ")
			})
		})
		for _, text := range causesOf(rest) {
			out = once(out, text)
		}
	}
	return out
}
