package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/app"
)

func newDeleteCommand(p *program) *cobra.Command {
	var keep int
	cmd := &cobra.Command{
		Use:   "delete [RUN…]",
		Short: "Delete stored runs",
		Long: `Delete runs from the store, with their directories and reports. Later runs reuse the
space; chokepoint gc returns it to the file system. A run in progress is never deleted.`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: completeRuns(p, 1000),
		RunE: func(cmd *cobra.Command, args []string) error {
			given := cmd.Flags().Changed("keep")
			switch {
			case given == (len(args) > 0):
				return app.Usage("usage: "+cmd.UseLine(), "delete: want either RUN… or --keep N")
			case given && keep < 0:
				return app.Usage("--keep 0 deletes all runs", "--keep %d: it is below 0", keep)
			}

			if !given {
				keep = -1
			}

			return deleteRuns(cmd.Context(), args, keep, p)
		},
	}
	cmd.Flags().IntVar(&keep, "keep", 0, "delete all but the newest `N`")
	return addJSON(cmd, "print the ids of the deleted runs as a JSON object")
}

func deleteRuns(ctx context.Context, names []string, keep int, p *program) error {
	removed, err := p.Dirs.Delete(ctx, names, keep)
	if err != nil && len(removed) == 0 {
		return err
	}

	text := ""
	for _, id := range removed {
		text += "deleted run " + app.ShownID(id) + "\n"
	}

	return errors.Join(err, p.line(deleted{append([]string{}, removed...)}, text))
}

// deleted holds the output of delete --json.
type deleted struct {
	Deleted []string `json:"deleted"`
}

func newGCCommand(p *program) *cobra.Command {
	return addJSON(&cobra.Command{
		Use:   "gc",
		Short: "Return the space of deleted runs to the file system",
		Long: `Rewrite the store without the space of deleted runs. This needs free space of up to
twice the size of its content: beside the store, and in the directory for temporary
files, which is $SQLITE_TMPDIR, else $TMPDIR, else /var/tmp. No run may be in progress.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return collect(cmd.Context(), p) },
	}, "print the store's size in bytes, before and after, as a JSON object")
}

// collected holds the output of gc --json.
type collected struct {
	Before int64 `json:"before_bytes"`
	After  int64 `json:"after_bytes"`
}

func collect(ctx context.Context, p *program) error {
	before, after, err := p.Dirs.Compact(ctx)
	if err != nil {
		return err
	}
	return p.line(collected{before, after}, fmt.Sprintf("%s: %.1f MB, was %.1f MB\n", p.Dirs.StoreFile(),
		float64(after)/1e6, float64(before)/1e6))
}
