// Package validity determines how far numbers can be trusted. It implements the checks of each trial, the
// grades of trials and cells with their reasons, the caveats of a run, and the ceilings with which results
// are compared.
package validity

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Graded is a trial with its metrics and its grade.
type Graded struct {
	Trial   *record.Trial
	Metrics *metrics.Measured
	Grade   string
	Reasons []evidence.Reason
	// Unchecked lists the checks that could not be made. It is set only for trials of a cell.
	Unchecked []evidence.Unchecked
}

// GradeTrial computes the metrics of a trial and grades it.
func GradeTrial(run *record.Run, t *record.Trial) *Graded {
	j := &Graded{Trial: t, Metrics: metrics.NewMeasured(), Reasons: []evidence.Reason{}}
	if t.Status == record.TrialOK {
		j.Metrics = metrics.Measure(t, metrics.PlaceOf(run, t.Row.Factors))
		s := trialCheck{run, t, j.Metrics, CeilingOf(run, t.Row.Factors)}
		if j.Reasons = gate(s); t.Row.OfCell() {
			j.Unchecked = unchecked(s)
		}
	}

	j.Grade = grade(t, j.Reasons)
	return j
}

// Sort sorts trials into the order of the run.
func Sort(all []*Graded) {
	slices.SortStableFunc(all, func(a, b *Graded) int {
		return cmp.Or(a.Trial.Row.Index-b.Trial.Row.Index, a.Trial.Attempt-b.Trial.Attempt)
	})
}

// StatusWords returns the rest of a sentence that starts with "the run".
func StatusWords(run *record.Run) string {
	words := "is " + run.Status
	switch run.Status {
	case record.RunRunning:
		words = "has no end yet: it is still going on, or was killed"
	case record.RunInterrupted, record.RunDone, record.RunKilled:
		words = "was " + run.Status
	case record.RunFailed:
		words = "failed"
	}

	if run.Reason != "" {
		words += " (" + run.Reason + ")"
	}

	return words
}

// grading holds the state while a cell is graded.
type grading struct {
	*metrics.Cell
	caveats []record.Caveat
	failed  int
}

// GradeCell sets the grade and the reasons of a cell. good contains the trials of the cell that count, trials
// contains all its trials, and verify contains the trials that verified the content on the cell's path. If
// there are no trials, ended is the reason. Each kind of reason occurs once, with the text of the first trial
// that has it. GradeCell returns the caveats of the cell and the number of failed trials.
func GradeCell(cell *metrics.Cell, good, trials, verify []*Graded, ended string) ([]record.Caveat, int) {
	c := grading{Cell: cell}
	c.Grade = evidence.GradeValid
	c.Reasons = []evidence.Reason{}
	touched := map[string]int{}
	for _, j := range good {
		kinds := map[string]bool{}
		for _, r := range j.Reasons {
			kinds[r.Kind] = true
		}

		for k := range kinds {
			touched[k]++
		}
	}

	minor := map[string]bool{}
	named := map[string]bool{}
	for _, j := range good {
		for _, r := range j.Reasons {
			switch {
			case evidence.KindOf(r.Kind).Chance && 4*touched[r.Kind] < len(good):
				minor[r.Kind] = true
			case !named[r.Kind]:
				named[r.Kind] = true
				others := touched[r.Kind] - 1
				if others > 0 {
					r.Text += fmt.Sprintf("; the same reason in %d more of %d trials", others, len(good))
				}

				c.Reasons = append(c.Reasons, r)
			}
		}
	}

	for _, k := range slices.Sorted(maps.Keys(minor)) {
		c.caveats = append(c.caveats, record.Caveat{
			Kind: k,
			Text: fmt.Sprintf("%d of %d trials are suspect: %s", touched[k], len(good),
				evidence.KindOf(k).Words()),
		})
	}

	c.addFailures(good, trials, ended)
	c.addVerify(verify)
	switch {
	case len(trials) == 0:
		c.Grade = evidence.GradeNotReached
	case len(good) == 0:
		c.Grade = evidence.GradeFailed
	case len(c.Reasons) > 0:
		c.Grade = evidence.GradeSuspect
	}

	return c.caveats, c.failed
}

// addFailures adds a reason if a row has no successful attempt, and a caveat if a failed row was repeated
// successfully. The caveat does not name the trial, so that cells with the same failure have the same caveat.
func (c *grading) addFailures(good, trials []*Graded, ended string) {
	ok := map[string]bool{}
	for _, j := range good {
		ok[j.Trial.Row.ID] = true
	}

	var texts []string
	repeated := map[string]int{} // number of repeated trials by cause
	for _, j := range trials {
		if j.Grade != evidence.GradeFailed {
			continue
		}

		c.failed++
		text := "failed"
		f := j.Trial.Failure
		if f != nil {
			text = fmt.Sprintf("failed in %s: %s", f.Phase, f.Error)
		}

		if ok[j.Trial.Row.ID] {
			if repeated[text]++; repeated[text] == 1 {
				texts = append(texts, text)
			}
			continue
		}

		c.Reasons = append(c.Reasons, evidence.Reason{
			Kind:  evidence.ReasonFailedTrials,
			Text:  text,
			Trial: j.Trial.ID,
		})
	}

	for _, text := range texts {
		words := "a trial " + text + "; it was repeated"
		n := repeated[text]
		if n > 1 {
			words = fmt.Sprintf("%d trials %s; they were repeated", n, text)
		}

		c.caveats = append(c.caveats, record.Caveat{Kind: "repeated", Text: words})
	}

	if len(trials) == 0 {
		c.Reasons = append(c.Reasons, evidence.Reason{Kind: evidence.ReasonRunEnded, Text: ended})
	}
}

// addVerify adds to the cell the reasons that the verifying trials on its path have. If such a trial was
// repeated, only the last successful attempt counts, as for other rows.
func (c *grading) addVerify(verify []*Graded) {
	ok := map[string]bool{}
	for _, j := range LastGood(verify) {
		ok[j.Trial.Row.ID] = true
		for _, r := range j.Reasons {
			if evidence.KindOf(r.Kind).Content {
				c.Reasons = append(c.Reasons, r)
			}
		}
	}

	for _, j := range verify {
		if !ok[j.Trial.Row.ID] {
			c.caveats = append(c.caveats, record.Caveat{
				Kind: "unverified",
				Text: "the content of this path was not verified: trial " + j.Trial.ID + " failed",
			})
		}
	}
}

// LastGood returns the last successful attempt of each row.
func LastGood(trials []*Graded) []*Graded {
	at := map[string]int{}
	var out []*Graded
	for _, j := range trials {
		if j.Grade == evidence.GradeFailed {
			continue
		}

		i, again := at[j.Trial.Row.ID]
		if !again {
			i = len(out)
			at[j.Trial.Row.ID] = i
			out = append(out, nil)
		}

		out[i] = j
	}

	return out
}

// Caveats returns the caveats of the whole run: the stored caveats, caveats about checks that could not be
// made, and caveats that follow from the cells and their numbers of trials.
func Caveats(run *record.Run, trials []*Graded, runs []int, cells []record.Factors) []record.Caveat {
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
	sends := len(cells) == 0 || slices.ContainsFunc(cells, factor.Sends)
	if sends && tested.CPUs == record.CPUsShared {
		add("shared-cores", "client, router and server share this machine's cores: numbers describe one "+
			"machine in all three roles, not a router")
	}

	told := map[string]bool{}
	for _, n := range run.Nodes {
		sharing := run.KernelOf(n.Name)
		if len(sharing) > 1 && !told[n.Kernel] {
			told[n.Kernel] = true
			add("shared-cores", fmt.Sprintf("%s have one kernel (the same boot id), and so share its cores: "+
				"what one does, the others lack", strings.Join(sharing, ", ")))
		}
	}

	if tested.CPUs == record.CPUsEmulated {
		add("emulated",
			"an emulated router's absolute speed means nothing; only its ratios and counters count")
	}

	if sends && tested.Guest() {
		add("shared-cores", "the router's vCPUs are this machine's, which client, server and load "+
			"generators use as well")
	}

	if slices.ContainsFunc(runs, func(n int) bool { return n > 0 && n < statistics.MinInterval }) {
		add("few-runs", fmt.Sprintf("fewer than %d runs: no confidence interval",
			statistics.MinInterval))
	}

	if slices.ContainsFunc(cells, func(f record.Factors) bool { return factor.Offload.Is(f, "super") }) {
		add("super-packets", "with offload super, packets of up to 64 KiB cross the virtual links: header "+
			"efficiency and packet counts do not describe a wire")
	}

	switch run.Status {
	case record.RunInterrupted, record.RunFailed, record.RunRunning, record.RunKilled:
		text := "cells may lack runs, because the run " + StatusWords(run)
		add("incomplete", text)
	}

	for _, c := range run.Design.Cuts {
		out = append(out, record.Caveat{Kind: "cut", Text: c})
	}

	if run.Between() && len(run.Imports) == 0 {
		add("router-unwatched", "what the router did, its CPUs, queues and drops, is missing: "+
			"chokepoint-agent probe sees it there, if it runs Linux and has room, and chokepoint import "+
			"adds that to the run")
	}

	if run.LabNote != "" {
		add("lab-note", run.LabNote)
	}

	m := run.Meter
	if m != nil && m.TypedIn() {
		add("power-typed-in", "the power was typed in, the same for every trial: "+typedWords(*m))
	} else if m != nil {
		words := "power of " + run.Metered() + " by " + m.At
		for _, j := range trials {
			s := j.Trial.Meter
			if s != nil && len(s.Metrics) > 0 {
				words = s.Metrics[0].Doc
			}
		}

		add("power-metered", words)
	}

	return append(out, uncheckedIn(trials)...)
}

func typedWords(m record.Meter) string {
	var words []string
	for _, w := range []struct {
		name  string
		value float64
	}{{"idle", m.IdleW}, {"loaded", m.LoadedW}} {
		if w.value > 0 {
			words = append(words, w.name+" "+unit.Significant(w.value, 3)+" W")
		}
	}
	return strings.Join(words, ", ")
}
