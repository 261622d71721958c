package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

func newDeleteCommand(p *program) *cobra.Command {
	var keep int
	var compact bool
	cmd := &cobra.Command{
		Use:        "delete (RUN… | --keep N | --compact)",
		Short:      "Delete stored runs, and return their space to the file system",
		SuggestFor: []string{"gc", "remove"},
		Long: `Delete runs from the store, with their directories and reports, and return their space
to the file system. A run in progress is never deleted. --keep also keeps all runs that
have a name; delete such a run by its name or id.

Returning the space rewrites the store, which needs free space of up to twice the size
of its content: beside the store, and in the directory for temporary files, which is
$SQLITE_TMPDIR, else $TMPDIR, else /var/tmp. While a run is in progress, the
space is not returned, and a note says so. Later runs reuse it, or --compact returns it.
In a PostgreSQL database only --compact returns the space, and the owner must call it.`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: completeRuns(p, 1000),
		RunE: func(cmd *cobra.Command, args []string) error {
			given := cmd.Flags().Changed("keep")
			asked := 0
			for _, way := range []bool{len(args) > 0, given, compact} {
				if way {
					asked++
				}
			}

			switch {
			case asked != 1:
				return app.Usage("usage: "+cmd.UseLine(), "delete: want one of RUN…, --keep N and --compact")
			case given && keep < 0:
				return app.Usage("--keep 0 deletes all runs without a name", "--keep %d: it is below 0", keep)
			case compact:
				size, err := compactStore(cmd.Context(), p)
				if err != nil {
					return err
				}

				return p.line(deleted{Deleted: []string{}, compacted: size}, size.text(p))
			}

			if !given {
				keep = -1
			}

			return deleteRuns(cmd.Context(), args, keep, p)
		},
	}
	cmd.Flags().IntVar(&keep, "keep", 0, "delete all runs except the newest `N` and those that have a name")
	cmd.Flags().BoolVar(&compact, "compact", false, "only return the space of runs that were deleted earlier")
	return addJSON(cmd,
		"print the ids of the deleted runs, and the store's size before and after, as a JSON object")
}

// deleted is the output of delete --json.
type deleted struct {
	Deleted   []string `json:"deleted"`
	KeptNamed []string `json:"kept_named,omitempty"` // named runs that --keep would otherwise have deleted
	*compacted
}

// compacted is the size of the store in bytes, before and after compaction.
type compacted struct {
	Before int64 `json:"before_bytes"`
	After  int64 `json:"after_bytes"`
}

func deleteRuns(ctx context.Context, names []string, keep int, p *program) error {
	done, err := p.Dirs.Delete(ctx, names, keep)
	if err != nil && len(done.Removed) == 0 {
		return err
	}

	id := func(h store.Head) string { return h.ID }
	out := deleted{Deleted: append([]string{}, each(done.Removed, id)...), KeptNamed: each(done.Named, id)}
	text := ""
	for _, h := range done.Removed {
		text += "deleted run " + namedRun(h) + "\n"
	}

	if len(done.Named) > 0 {
		text += fmt.Sprintf("kept %s with a name: %s\n", unit.Count(len(done.Named), "older run"),
			list(each(done.Named, namedRun)))
	}

	// Compacting the store of a server would lock out its other users.
	if len(done.Removed) > 0 && err == nil && p.Dirs.Store == "" {
		size, failed := compactStore(ctx, p)
		switch {
		case ctx.Err() != nil:
			err = failed
		case failed != nil:
			p.note("%v; chokepoint delete --compact does it later", failed)
		default:
			out.compacted = size
			text += size.text(p)
		}
	}

	return errors.Join(err, p.line(out, text))
}

// namedRun formats the id and the name of a run.
func namedRun(h store.Head) string {
	id := app.ShownID(h.ID)
	if h.Name != "" {
		id += " (" + check.Plain(h.Name) + ")"
	}
	return id
}

// compactStore returns the space of deleted runs to the file system.
func compactStore(ctx context.Context, p *program) (*compacted, error) {
	before, after, err := p.Dirs.Compact(ctx)
	return &compacted{before, after}, err
}

func (c *compacted) text(p *program) string {
	return fmt.Sprintf("%s: %.1f MB, was %.1f MB\n", p.Dirs.StoreName(), float64(c.After)/1e6,
		float64(c.Before)/1e6)
}
