package main

import (
	"slices"

	"github.com/spf13/cobra"
)

// renamed is the output of rename --json.
type renamed struct {
	Run  string `json:"run"`
	Name string `json:"name"` // empty if the name was removed
}

func newRenameCommand(p *program) *cobra.Command {
	return addJSON(&cobra.Command{
		Use:   "rename RUN NAME [--json]",
		Short: "Give a stored run a name",
		Long: `Give a stored run a name, which every command then accepts, or replace the name that it
has. An empty NAME removes it. A name consists of letters, digits, dots, dashes and
underscores, and no two runs have the same.`,
		Args:              exactArgs("RUN", "NAME"),
		ValidArgsFunction: completeRuns(p, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := p.Dirs.Rename(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}

			text := "run " + id + " is called " + args[1] + "\n"
			if args[1] == "" {
				text = "run " + id + " has no name\n"
			}

			return p.line(renamed{id, args[1]}, text)
		},
	}, "print the id and the name as a JSON object")
}

// emptyName reports whether the only empty argument is rename's new name. An empty new name removes the name.
func emptyName(cmd *cobra.Command, args []string) bool {
	return cmd.Name() == "rename" && slices.Index(args, "") == 1
}
