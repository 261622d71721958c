package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

func newDeleteCommand(p *program) *cobra.Command {
	var keep int
	cmd := &cobra.Command{
		Use: "delete [RUN…] [--keep N] [--json]", Short: "Delete stored runs",
		Long: `Delete runs from the store, with their directories and reports. Later runs reuse the
space; chokepoint gc returns it to the file system. A run in progress is never deleted.`,
		Args: cobra.ArbitraryArgs, ValidArgsFunction: completeRuns(p, 1000),
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

func deleteRuns(ctx context.Context, names []string, keep int, p *program) (err error) {
	st, err := openToChange(ctx, p)
	if errors.Is(err, store.ErrNone) && keep >= 0 {
		return p.line(deleted{Deleted: []string{}}, "")
	}
	if err != nil {
		return err
	}
	defer closing(&err, st.Close)
	heads, err := st.Runs(ctx)
	if err != nil {
		return err
	}
	alive, err := journal.Living(p.Dirs.Journals())
	if err != nil {
		return err
	}
	doomed, err := chosen(ctx, st, heads, names)
	if err != nil {
		return err
	}
	for _, id := range doomed {
		if slices.Contains(alive, id) {
			return goingOn(id, ", nothing was deleted")
		}
	}
	for i, h := range heads {
		if keep >= 0 && i >= keep && !slices.Contains(alive, h.ID) {
			doomed = append(doomed, h.ID)
		}
	}
	d, text := deleted{Deleted: []string{}}, ""
	for _, id := range doomed { // on a full disk the store needs some room to delete
		if err := removeRunDirectory(p.Dirs, id); err != nil {
			return err
		}
	}
	for _, id := range doomed {
		if journal.Lives(p.Dirs.Journals(), id) { // it was resumed meanwhile
			err = goingOn(id, "")
		} else {
			err = st.Remove(ctx, id)
		}
		if err != nil {
			break
		}
		d.Deleted, text = append(d.Deleted, id), text+"deleted run "+app.ShownID(id)+"\n"
	}
	return errors.Join(err, p.line(d, text))
}

func goingOn(id, more string) error {
	return app.Hinted("wait for it, or stop it with Ctrl-C", "delete run %s: it is still going on%s", id,
		more)
}

// deleted holds the output of delete --json.
type deleted struct {
	Deleted []string `json:"deleted"`
}

// openToChange opens the store for removal; that there is none is an error.
func openToChange(ctx context.Context, p *program) (*store.Store, error) {
	st, err := p.Dirs.OpenStore(ctx)
	if err != nil {
		return nil, err
	}
	if err := st.Close(); err != nil {
		return nil, err
	}
	return store.Open(ctx, p.Dirs.StoreFile())
}

// chosen resolves names to ids of runs. A damaged run needs its exact id.
func chosen(ctx context.Context, st *store.Store, heads []store.Head, names []string) ([]string, error) {
	var ids []string
	for _, name := range names {
		id, err := name, error(nil)
		if !slices.ContainsFunc(heads, func(h store.Head) bool { return h.ID == name }) {
			id, err = st.Resolve(ctx, name)
		}
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return distinct(ids), nil
}

// removeRunDirectory removes a run's directory beside the store.
func removeRunDirectory(d app.Dirs, id string) error {
	if !store.ValidID(id) {
		return nil // no directory can have that name
	}
	root, err := os.OpenRoot(filepath.Dir(filepath.Dir(d.ReportFile(id))))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = errors.Join(root.RemoveAll(id), root.Close())
	}
	if err != nil {
		return fmt.Errorf("delete the directory of run %s: %w", id, err)
	}
	return nil
}

func newGCCommand(p *program) *cobra.Command {
	return addJSON(&cobra.Command{
		Use: "gc [--json]", Short: "Return the space of deleted runs to the file system",
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

func collect(ctx context.Context, p *program) (err error) {
	alive, err := journal.Living(p.Dirs.Journals())
	if err != nil {
		return err
	}
	if len(alive) > 0 {
		return app.Hinted("wait for it, or stop it with Ctrl-C",
			"gc: run %s is going on, and would be disturbed", alive[0])
	}
	st, err := openToChange(ctx, p)
	if err != nil {
		return err
	}
	defer closing(&err, st.Close)
	ids, err := st.Removed(ctx)
	for _, id := range ids {
		err = errors.Join(err, removeRunDirectory(p.Dirs, id)) // what a delete that failed has left
	}
	if err != nil {
		return err
	}
	var c collected
	if c.Before, c.After, err = st.Compact(ctx); err != nil {
		return err
	}
	return p.line(c, fmt.Sprintf("%s: %.1f MB, was %.1f MB\n", st.Path(), float64(c.After)/1e6,
		float64(c.Before)/1e6))
}
