package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/report"
)

func newDiagnoseCommand(p *program) *cobra.Command {
	var cell, class, codeFile string
	var prove, dry bool
	cmd := &cobra.Command{
		Use:   "diagnose [RUN]",
		Short: "Show what limited the traffic of a run",
		Long: `Show what limited the traffic of a stored run, cell by cell: the cause, the evidence,
the causes that were ruled out and the numbers that rule them out, the confidence, what
to change, and the largest possible gain. Without RUN, it reads the latest run. Cells
with the same result are shown together.

Everything is read from the stored run; no lab is needed. An unknown cause is reported
as unknown, and causes that could not be examined are listed with the reason.

--prove tests each finding by experiment, in the lab that the run used. An experiment
changes the suspected resource in steps and is stored as a separate run. --dry-run
prints the plans of these runs instead; you can run each by hand.`,
		Args:              optionalArg,
		ValidArgsFunction: completeRuns(p, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := proveAlone(prove, dry, class, codeFile); err != nil {
				return err
			}

			// A document file may come from someone else and name any lab, router and run.
			run := runOf(args)
			if prove && app.IsDocumentFile(run) {
				return app.Usage("chokepoint diagnose RUN --prove",
					"--prove needs a stored run: %s is a file", run)
			}

			doc, err := p.Dirs.Document(cmd.Context(), run)
			if err != nil {
				return err
			}

			if prove && len(doc.Run.ImportedFrom) > 0 {
				return app.Usage("chokepoint run measures here",
					"prove findings of run %s: it was imported, and no lab made it", doc.Run.ID)
			}

			if cell != "" {
				if err := only(doc, cell); err != nil {
					return err
				}
			}

			var failed error
			switch {
			case dry:
				return p.experiments(cmd.Context(), doc, class)
			case prove:
				doc, failed = p.Prove(cmd.Context(), doc, app.ProveOptions{Class: class, CodeFile: codeFile})
			}

			return errors.Join(failed, p.diagnoses(doc))
		},
	}
	f := cmd.Flags()
	f.StringVar(&cell, "cell", "",
		"only cells whose label has these `WORDS`, in any order, or the cell with this id")
	f.BoolVar(&prove, "prove", false, proveUsage)
	f.StringVar(&class, "cause", "", "with --prove: test this `CLASS` of cause in each cell, even "+
		"if it was not found, such as receive-window")
	f.BoolVar(&dry, "dry-run", false,
		"with --prove: print the plans of the experiments and run none")
	f.StringVar(&codeFile, "peer-code-file", "",
		"with --prove: read the peer's current code from this `FILE`")
	return addJSON(cmd, "print one JSON object per cell")
}

// diagnosed is a line of the output of diagnose --json.
type diagnosed struct {
	Run       string               `json:"run"`
	ID        string               `json:"id"`
	Factors   record.Factors       `json:"factors"`
	Label     string               `json:"label"`
	Diagnosis *diagnosis.Diagnosis `json:"diagnosis"`
}

// diagnoses prints the diagnosis of each cell.
func (p *program) diagnoses(doc *analysis.Document) error {
	var all []diagnosed
	for _, c := range doc.Cells {
		if c.Diagnosis != nil {
			all = append(all, diagnosed{doc.Run.ID, c.ID, c.Factors, c.Label, c.Diagnosis})
		}
	}

	return printLines(p, all, p.laidOut(doc, report.Diagnosis))
}

// only reduces a document to the cells whose label contains all words, or to the cell whose id is words.
func only(doc *analysis.Document, words string) error {
	var labels []string
	doc.Cells = slices.DeleteFunc(doc.Cells, func(c analysis.Cell) bool {
		labels = append(labels, c.Label)
		return c.ID != words && !app.HasWords(c.Label, words)
	})
	if len(doc.Cells) == 0 {
		return app.Usage("cells: "+strings.Join(labels, "; "), "--cell %q: run %s has no such cell",
			words, doc.Run.ID)
	}

	doc.Verdicts = analysis.Verdicts(doc.Cells)
	return nil
}

// experiments prints the plans of the experiments on a run's findings. Each is a complete plan file.
func (p *program) experiments(ctx context.Context, doc *analysis.Document, class string) error {
	experiments, err := p.Experiments(ctx, doc, app.ProveOptions{Class: class})
	if err != nil {
		return err
	}

	plans := each(experiments, func(e app.Experiment) expanded { return expandPlan(e.Plan) })
	texts := each(experiments, func(e app.Experiment) string { return e.Text })
	return printLines(p, plans, check.Plain(strings.Join(texts, "---\n")))
}

// proveUsage is the help text of --prove for run and diagnose.
const proveUsage = "test each finding by experiment: three steps of one resource in\nrandom order, between " +
	"untouched windows; then restore everything"

// proveAlone returns an error if an option that requires --prove is used without it, or if the cause is
// unknown.
func proveAlone(prove, dry bool, class, codeFile string) error {
	for flag, given := range map[string]bool{"--dry-run": dry, "--cause": class != "",
		"--peer-code-file": codeFile != ""} {
		if given && !prove {
			return app.Usage("chokepoint diagnose RUN --prove "+flag, "%s without --prove", flag)
		}
	}

	all := each(diagnosis.Rules(), func(r diagnosis.Rule) string { return r.Class })
	return known("--cause %q is no cause", class, "causes", all...)
}
