package main

import (
	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/app"
)

func newVersionCommand(p *program) *cobra.Command {
	return addJSON(&cobra.Command{
		Use:   "version",
		Short: "Print the version of chokepoint",
		RunE: func(*cobra.Command, []string) error {
			return p.document(app.ReadVersion(), app.ReadVersion().String()+"\n")
		},
	}, "print one JSON object")
}
