package main

import (
	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/report"
)

func newShowCommand(p *program) *cobra.Command {
	return addJSON(&cobra.Command{
		Use:   "show RUN [--json]",
		Short: "Show the results of a stored run",
		Long: `Show the results of a stored run: every cell with its intervals, its grade and the
reasons to doubt it. RUN is an id, a unique prefix, or latest.

--json prints the document that docs/reference/json.md describes. Everything derived is
recomputed from the measurements.`,
		Args:              exactArgs("RUN"),
		ValidArgsFunction: completeRuns(p, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			doc, err := p.Dirs.Document(cmd.Context(), args[0])
			if err != nil {
				return err
			}

			if !p.json {
				return p.print(p.laidOut(doc, report.Text))
			}

			content, err := report.JSON(doc)
			if err != nil {
				return err
			}

			return p.print(string(content))
		},
	}, "print one JSON document")
}
