package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// head is the top of a report: what was measured and what came out, in words.
type head struct {
	Title   string // of the plan
	Lead    string // what was measured
	Points  []string
	Verdict []Item // what held the traffic back
	Paths   []Figure
	Meta    []Fact
	Alerts  []Item // what makes the whole run less than it should be
	Caveats []Item
}

func headOf(v *view) head {
	started := ""
	if !v.Run.Started.IsZero() {
		started = v.Run.Started.UTC().Format("2 Jan 2006, 15:04 UTC")
	}
	h := head{Title: v.Run.Plan, Verdict: v.verdictItems(), Paths: v.paths(), Alerts: alerts(v), Meta: []Fact{
		{Name: "Run", Value: v.Run.ID}, {Name: "Started", Value: started}, {Name: "Lab", Value: v.Run.Lab},
		{Name: "Measured by", Value: strings.Join(v.Run.ImportedFrom, ", ")},
		{Name: "Machine", Value: machine(v.Environment)}, {Name: "Firmware", Value: firmware(v.Environment)},
		{Name: "Measured", Value: extent(v)},
		{Name: "Status", Value: v.Run.Status}}}
	h.Meta = given(h.Meta)
	if len(v.Summary) > 0 {
		h.Lead, h.Points = v.Summary[0], unsaid(v.Summary[1:], v.Caveats)
	}
	h.Caveats = each(v.Caveats, caveatItem)
	return h
}

// given are the facts that have a value.
func given(all []Fact) []Fact {
	return filter(all, func(f Fact) bool { return f.Value != "" })
}

// unsaid drops the sentences that stand among the caveats anyway.
func unsaid(points []string, caveats []record.Caveat) []string {
	return filter(points, func(p string) bool {
		return !slices.ContainsFunc(caveats, func(c record.Caveat) bool {
			return strings.EqualFold(strings.TrimRight(p, "."), strings.TrimRight(c.Text, "."))
		})
	})
}

// extent says how much was measured: cells and runs of each.
func extent(v *view) string {
	counts := slices.Sorted(slices.Values(each(v.all, func(c *analysis.Cell) int { return c.Runs })))
	if len(counts) == 0 {
		counts = []int{0}
	}
	low, high := counts[0], counts[len(counts)-1]
	runs := unit.Count(high, "run")
	if low != high {
		runs = fmt.Sprintf("%d to %s", low, runs)
	}
	return unit.Count(len(v.Cells), "cell") + " × " + runs
}

// machine is the carrier of the lab, from its fingerprint, or both ends' where each node is a machine.
func machine(all []record.Environment) string {
	carried := slices.ContainsFunc(all, func(e record.Environment) bool { return e.Node == "host" })
	var ends []string
	for _, e := range all {
		if carried && e.Node != "host" && len(all) > 1 {
			continue
		}
		system := unit.System(e.Facts["os"]) + " "
		text := joined(", ", e.Facts["cpu_model"], around("", e.Facts["cores"], " cores"),
			around(system, strings.TrimPrefix(e.Facts["kernel"], system), ""))
		if carried || len(all) == 1 {
			return text
		}
		ends = append(ends, around(e.Node+": ", text, ""))
	}
	return joined("; ", ends...)
}

// firmware is the system of the real router, as it was when the run began.
func firmware(all []record.Environment) string {
	return cmp.Or(each(all, func(e record.Environment) string { return e.Facts["firmware"] })...)
}

func alerts(v *view) []Item {
	var out []Item
	if s := v.Run.Status; s != record.RunDone && s != "" {
		text := "The run is not complete: " + s + bracket(v.Run.Reason) + "."
		out = append(out, Item{Kind: s, Text: text, Tone: Bad})
	}
	add := func(kind string, tone Tone, n int, one, many, rest string) {
		if n > 0 {
			out = append(out, Item{Kind: kind, Tone: tone, Text: plural(n, one, many) + rest})
		}
	}
	graded := func(grade string) int {
		return len(v.cells(func(c *analysis.Cell) bool { return c.Grade == grade && !unmeasured(c) }))
	}
	add("missed", Bad, missed(v), "requirement", "requirements", fmt.Sprintf(" of %d missed.",
		len(v.Thresholds)))
	add("not measured", Bad, len(v.cells(unmeasured)), "cell was", "cells were", " not measured.")
	add("failed", Bad, graded(evidence.GradeFailed), "cell has", "cells have",
		" no number; the reasons stand in the table.")
	add("suspect", Doubt, graded(evidence.GradeSuspect), "cell is", "cells are",
		" suspect; the reasons stand in the table.")
	return out
}
