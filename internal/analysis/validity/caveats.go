package validity

import (
	"fmt"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Caveats are those of the whole run: what it stored, and what follows from its shape: its cells, and how
// many runs with numbers each of them has.
func Caveats(run *record.Run, runs []int, cells []record.Factors) []record.Caveat {
	out := append([]record.Caveat(nil), run.Caveats...)
	have := map[string]bool{}
	for _, c := range out {
		have[c.Kind] = true
	}
	add := func(kind, text string) {
		if !have[kind] {
			out = append(out, record.Caveat{Kind: kind, Text: text})
		}
	}
	tested := run.Tested()
	if tested.CPUs == record.CPUsShared {
		add("shared-cores", "client, router and server share this machine's cores, so numbers describe this "+
			"machine doing all three, not a router alone")
	}
	if tested.CPUs == record.CPUsEmulated {
		add("emulated", "an emulated router's absolute speed means nothing; its ratios, counters and "+
			"reactions do")
	}
	if tested.Guest() {
		add("shared-cores", "the router's vCPUs are this machine's, which client, server and load "+
			"generators use as well")
	}
	if slices.ContainsFunc(runs, func(n int) bool { return n > 0 && n < statistics.MinInterval }) {
		add("few-runs", fmt.Sprintf("with fewer than %d runs per cell the smallest and the largest value "+
			"are shown, not an interval", statistics.MinInterval))
	}
	if slices.ContainsFunc(cells, func(f record.Factors) bool { return factor.Offload.Is(f, "super") }) {
		add("super-packets", "with offload super, packets of up to 64 KiB cross the virtual links: header "+
			"efficiency and packet counts do not describe a wire")
	}
	switch run.Status {
	case record.RunInterrupted, record.RunFailed, record.RunRunning:
		text := "cells may lack runs, because the run " + StatusWords(run)
		add("incomplete", text)
	}
	for _, c := range run.Design.Cuts {
		out = append(out, record.Caveat{Kind: "cut", Text: c})
	}
	if run.Near().OwnMachine() && len(run.Imports) == 0 {
		add("router-unwatched", "what the router did, its CPUs, queues and drops, is missing: "+
			"chokepoint-agent probe sees it there, if it runs Linux and has room, and chokepoint import "+
			"adds that to the run")
	}
	if run.LabNote != "" {
		add("lab-note", run.LabNote)
	}
	return out
}
