package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

// Deletion is the result of Delete: the removed runs, and the older runs that were kept because they have a
// name.
type Deletion struct{ Removed, Named []store.Head }

// Delete removes the runs in names, with their directories. If keep is not negative, Delete also removes all
// other runs, except the newest keep runs and runs that have a name. It never removes a run in progress. If
// it fails, it still returns the runs that it has removed.
func (d Dirs) Delete(ctx context.Context, names []string, keep int) (out Deletion, err error) {
	st, err := d.openToChange(ctx)
	if errors.Is(err, store.ErrNone) && keep >= 0 {
		return out, nil
	}

	if err != nil {
		return out, err
	}
	defer Closing(&err, st.Close)
	heads, err := st.Runs(ctx)
	if err != nil {
		return out, err
	}

	ids, err := chosen(ctx, st, heads, names)
	if err != nil {
		return out, err
	}

	var doomed []store.Head
	for i, h := range heads {
		named := slices.Contains(ids, h.ID)
		if !named && (keep < 0 || i < keep) {
			continue
		}

		alive, err := st.Alive(h.ID)
		switch {
		case err != nil:
			return out, err
		case named && alive:
			return out, goingOn(h.ID)
		case alive:
		case !named && h.Name != "":
			out.Named = append(out.Named, h)
		default:
			doomed = append(doomed, h)
			ids = append(ids, h.ID)
		}
	}

	ours, err := st.Record(ids...) // so that no other process resumes these runs
	if taken, ok := errors.AsType[*store.AliveError](err); ok {
		return out, goingOn(taken.Run)
	}

	if err != nil {
		return out, err
	}
	defer Closing(&err, ours.Close)
	for _, h := range doomed { // remove directories first, because the store needs free space to delete runs
		if err := d.removeRun(h.ID); err != nil {
			return out, err
		}
	}

	for _, h := range doomed {
		if err := st.Remove(ctx, h.ID); err != nil {
			return out, err
		}

		out.Removed = append(out.Removed, h)
	}

	return out, nil
}

func goingOn(id string) error {
	return Hinted("wait for it, or stop it with Ctrl-C",
		"delete run %s: it is still going on, nothing was deleted", id)
}

// openToChange opens the store for removal. It returns an error if there is none.
func (d Dirs) openToChange(ctx context.Context) (*store.Store, error) {
	st, err := d.OpenStore(ctx)
	if err != nil {
		return nil, err
	}

	if err := st.Close(); err != nil {
		return nil, err
	}

	return store.Open(ctx, d.place())
}

// chosen resolves names to run ids, without duplicates. It finds a damaged run only by its exact id.
func chosen(ctx context.Context, st *store.Store, heads []store.Head, names []string) (ids []string,
	err error) {
	for _, id := range names {
		if !slices.ContainsFunc(heads, func(h store.Head) bool { return h.ID == id }) {
			if id, err = st.Resolve(ctx, id); err != nil {
				return nil, ofRequest(err)
			}
		}

		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// removeRun removes a run's directory, which is next to the store. Runs on a server have no directory.
func (d Dirs) removeRun(id string) error {
	if d.Store != "" || !store.ValidID(id) { // an invalid id cannot be the name of a directory
		return nil
	}

	root, err := os.OpenRoot(d.runDir(""))
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

// removeEmptyRuns removes the empty directories of runs that were killed before they began. It leaves
// directories that contain files. A server has no such directories.
func (d Dirs) removeEmptyRuns(st *store.Store) {
	if d.Store != "" {
		return
	}

	runs := d.runDir("")
	entries, _ := os.ReadDir(runs)
	for _, e := range entries {
		alive, err := st.Alive(e.Name())
		if e.IsDir() && store.ValidID(e.Name()) && !alive && err == nil {
			_ = unix.Rmdir(filepath.Join(runs, e.Name())) // fails if the directory is not empty
		}
	}
}

// Compact gives the space of deleted runs back to the file system. It returns the size of the store in bytes
// before and after.
func (d Dirs) Compact(ctx context.Context) (before, after int64, err error) {
	living, err := journal.Living(d.Journals())
	if err != nil {
		return 0, 0, err
	}

	st, err := d.openToChange(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer Closing(&err, st.Close)
	alive, err := st.Alive("")
	if err == nil && (alive || len(living) > 0 && d.Store == "") {
		which := cmp.Or(append(living, "of another user or session")...)
		err = Hinted("wait for it, or stop it with Ctrl-C",
			"the space of deleted runs is not returned: run %s is going on, and would be disturbed", which)
	}

	if err != nil {
		return 0, 0, err
	}

	ids, err := st.Removed(ctx)
	for _, id := range ids {
		err = errors.Join(err, d.removeRun(id)) // remove directories that a failed deletion left behind
	}

	d.removeEmptyRuns(st)

	if err != nil {
		return 0, 0, err
	}

	return st.Compact(ctx)
}
