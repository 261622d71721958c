package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// trialSection lists all trials in the order of the run, including failed ones with the data they have.
func trialSection(v *view, s *Section) {
	t := Table{
		ID:     "trial-table",
		Folded: true,
		Caption: unit.Count(len(v.Trials), "trial") +
			" in the order of the run",
		Columns: columns("Trial", "Started|UTC", "What", "#Rate", "#Loss",
			"#RTT p50|loaded or idle", "#Retransmits", "Path", "Validity"),
	}
	t.Columns[0].Keep = true
	for _, k := range v.Trials {
		row := t.row(k.ID, k.Started.UTC().Format("15:04:05"), cellName(v.trialName(k), k.Factors),
			v.trialCell(k, packetRate, goodput), v.trialCell(k, lossRatio),
			v.trialCell(k, loadedP50, idleP50), v.trialCell(k, retransmits), pathWords(k.Path),
			graded(k.Grade))
		if k.Grade == evidence.GradeFailed {
			row.Tone = Bad
		}

		f := k.Failure
		if f != nil {
			hint := once(nil, around("hint: ", f.Hint, ""))
			row.Notes = []Item{{Kind: "failed in " + f.Phase, Text: f.Error, Tone: Bad, Evidence: hint}}
		}

		for _, r := range k.Reasons {
			r.Trial = "" // the row names the trial
			row.Notes = append(row.Notes, reasonItem(k.Grade, r))
		}

		for _, c := range k.Caveats {
			row.Cells[0].Mark = append(row.Cells[0].Mark, noted(&t.Notes, caveatItem(c)))
		}
	}

	s.addTables(t)
}

func (v *view) trialName(k analysis.TrialView) string {
	name := v.label(k.Factors)
	switch k.Kind {
	case record.RowIdle:
		return "idle latency: " + name
	case record.RowVerify:
		return "verified content: " + name
	}
	return name
}

// trialCell shows the first of the named metrics that the trial has.
func (v *view) trialCell(k analysis.TrialView, names ...string) TableCell {
	for _, m := range names {
		x, ok := k.Metrics[m]
		if ok {
			cell := TableCell{Text: v.text(m, x)}
			if len(names) > 1 { // otherwise, the heading of the column names the metric
				cell.Long = metrics.Label(m)
			}

			return cell
		}
	}

	for _, m := range names {
		if k.Missing[m] != "" {
			return missingCell(k.Missing, m)
		}
	}
	return none
}

// pathWords summarises the evidence that the traffic took the intended path.
func pathWords(p *record.PathEvidence) string {
	if p == nil {
		return "–"
	}

	var words []string
	for _, c := range p.Counters {
		if c.After > c.Before {
			words = once(words, c.Node+"/"+c.Device)
		}
	}

	text := fmt.Sprintf("path MTU %d", p.PathMTU)
	if p.PathMTU != p.WantMTU && p.WantMTU != 0 {
		text += fmt.Sprintf(" instead of %d", p.WantMTU)
	}

	return text + around("; counters moved on ", strings.Join(words, ", "), "")
}

// trialNotes summarises failures and the caveats of trials, for output that does not list every trial. It
// omits caveats that the known tables already show as notes.
func trialNotes(v *view, known ...Table) []Item {
	var out []Item
	add := func(item Item, trial string) {
		i := noted(&out, item)
		out[i].Evidence = append(out[i].Evidence, trial)
	}
	for _, t := range v.Trials {
		f := t.Failure
		if f != nil {
			text := f.Error + around(" (hint: ", f.Hint, ")")
			add(Item{Kind: "failed in " + f.Phase, Text: text, Tone: Bad}, t.ID)
		}

		for _, c := range t.Caveats {
			item := caveatItem(c)
			if !slices.ContainsFunc(known, func(t Table) bool { return t.says(item) }) {
				add(item, t.ID)
			}
		}
	}

	for i, item := range out {
		ids := item.Evidence
		if out[i].Evidence = []string{strings.Join(ids, ", ")}; len(ids) > 4 {
			out[i].Evidence[0] = fmt.Sprintf("%d trials, the first %s", len(ids), ids[0])
		}
	}

	return out
}
