package main

import (
	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/report"
	"github.com/chokepoint-lab/chokepoint/internal/userfile"
)

func newShowCommand(p *program) *cobra.Command {
	var full bool
	cmd := addJSON(&cobra.Command{
		Use:   "show [RUN]",
		Short: "Show the results of a stored run",
		Long: `Show the results of a stored run on one screen: the rates, what held them back and
what to change, the latency under load, and what limits the numbers. Without RUN it is
the latest run.

--full prints every cell with its intervals, its grade and the reasons to doubt it, the
evidence for each bottleneck, and all comparisons. --json prints the document that
docs/reference/json.md describes. Everything derived is recomputed from the
measurements.`,
		Args:              optionalArg,
		ValidArgsFunction: completeRuns(p, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			doc, err := p.Dirs.Document(cmd.Context(), runOf(args))
			if err != nil {
				return err
			}

			if p.json {
				content, err := report.JSON(doc)
				if err != nil {
					return err
				}

				return p.print(string(content))
			}

			if full {
				return p.print(p.laidOut(doc, report.Text))
			}

			file := p.Dirs.ReportFile(doc.Run.ID)
			if !userfile.Exists(file) {
				file = ""
			}

			of := ""
			if len(args) > 0 {
				of = " " + args[0]
			}

			return p.print(p.oneScreen(doc, file, of))
		},
	}, "print one JSON document")
	cmd.Flags().BoolVar(&full, "full", false, "print every number, caution and piece of evidence")
	return cmd
}

// oneScreen renders a run on one screen, with the path of its page, if there is one, and further commands. of
// is a space followed by the name of the run, or "" for the latest run.
func (p *program) oneScreen(doc *analysis.Document, file, of string) string {
	text := p.laidOut(doc, report.Screen)
	if file != "" {
		text += "Report   " + check.Plain(file) + "\n"
	}

	more := "diagnose"
	if len(doc.Run.ImportedFrom) > 0 { // an imported run has no data about the path
		more = "report"
	}

	return text + check.Plain("More     chokepoint show"+of+" --full · chokepoint "+more+of+"\n")
}
