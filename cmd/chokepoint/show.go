package main

import (
	"context"

	"github.com/spf13/cobra"
)

type showOptions struct {
	run  string
	json bool
}

func newShowCommand(p *program) *cobra.Command {
	var o showOptions
	cmd := &cobra.Command{
		Use:   "show RUN [--json]",
		Short: "Show the results of a stored run",
		Long: "Show the results of a stored run: every cell with its intervals, its grade and\n" +
			"the reasons to doubt it. RUN is an id, a unique prefix, or latest.\n\n" +
			"--json prints the document that docs/format.md describes. Everything derived is\n" +
			"computed anew from what was measured.",
		Args:              exactArgs("RUN"),
		ValidArgsFunction: completeRuns(p, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.run = args[0]
			return runShow(cmd.Context(), o, p.dirs, p.streams)
		},
	}
	cmd.Flags().BoolVar(&o.json, "json", false, "print one JSON document")
	return cmd
}

func runShow(ctx context.Context, o showOptions, d dirs, s streams) error {
	doc, err := loadDocument(ctx, d, o.run)
	if err != nil {
		return err
	}
	if !o.json {
		return write(s.Out, s.resultText(doc))
	}
	content, err := render(doc, formatJSON)
	if err != nil {
		return err
	}
	return write(s.Out, string(content))
}
