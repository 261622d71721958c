package app

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

// Transfer sends the named runs to another store. If names is empty, it sends all ended runs that the other
// store lacks or has with fewer records, oldest first. If a run cannot be sent, Transfer continues with the
// next one. It returns the runs that were sent even if it fails. Transfer creates the other store if it is
// missing. On a server, it creates the store even if there is nothing to send.
func (d Dirs) Transfer(ctx context.Context, other Dirs, names []string) (sent []store.Sent, err error) {
	from, err := d.OpenStore(ctx)
	if errors.Is(err, store.ErrNone) && len(names) == 0 && other.Store != "" {
		to, err := other.OpenToRecord(ctx)
		if err != nil {
			return nil, err
		}
		return nil, to.Close()
	}

	if err != nil {
		return nil, err
	}
	defer Closing(&err, from.Close)
	ids, err := chosen(ctx, from, nil, names)
	if err != nil {
		return nil, err
	}

	to, err := other.OpenToRecord(ctx)
	if err != nil {
		return nil, err
	}
	defer Closing(&err, to.Close)
	if len(names) == 0 {
		ids, err = lacking(ctx, from, to)
	}

	for _, id := range ids {
		if ctx.Err() != nil {
			return sent, errors.Join(err, context.Cause(ctx))
		}

		one, failed := from.Send(ctx, to, id)
		if failed == nil {
			sent = append(sent, one)
		}

		err = errors.Join(err, failed)
	}

	return sent, err
}

// OpenOwn opens this machine's own store for new runs and notes.
func (d Dirs) OpenOwn(ctx context.Context) (*store.Store, error) {
	st, err := store.Open(ctx, d.StoreFile())
	if err == nil {
		st.SendTo(d.Team)
	}
	return st, err
}

// OpenToRecord opens the store for copies of runs.
func (d Dirs) OpenToRecord(ctx context.Context) (*store.Store, error) {
	if err := trusted(d.Data); d.Store == "" && err != nil {
		return nil, err
	}
	return store.Open(ctx, d.place())
}

// lacking lists the ended runs that another store lacks or has with fewer records, oldest first. It leaves
// out runs that were deleted there.
func lacking(ctx context.Context, from, to *store.Store) (ids []string, err error) {
	ours, err := from.Sizes(ctx)
	if err != nil {
		return nil, err
	}

	theirs, err := to.Sizes(ctx)
	if err != nil {
		return nil, err
	}

	deleted, err := to.Removed(ctx)
	if err != nil {
		return nil, err
	}

	heads, err := from.Runs(ctx)
	for _, h := range slices.Backward(heads) {
		has, there := ours[h.ID], theirs[h.ID]
		more := has.Trials > there.Trials || has.Notes > there.Notes || has.Ends > there.Ends
		if has.Ended && more && h.Damaged == "" && !slices.Contains(deleted, h.ID) {
			ids = append(ids, h.ID)
		}
	}

	return ids, err
}

// Recorded calls f, which records runs in this machine's own store, so that no run depends on a server. If a
// server is in use, Recorded then sends it the new runs, and runs that could not be sent before. If that
// fails, Recorded tells the user but returns no error.
func (a *App) Recorded(ctx context.Context, f func() error) error {
	team := a.Dirs
	if team.Store == "" {
		return f()
	}

	a.Dirs = team.Recording()
	err := f()
	unhurried, stop := a.unhurried(context.WithoutCancel(ctx))
	defer stop()
	if failed := a.SendRecorded(unhurried, team); failed != nil {
		a.note("not sent to %s: %v; the next run sends it, or chokepoint push", team.StoreName(), failed)
	}

	_, missing := errors.AsType[*store.NotFoundError](err)
	if missing || errors.Is(err, store.ErrNone) {
		err = check.WithHint(err, "a run that only the server has: chokepoint pull RUN copies it here; "+
			check.HintOf(err))
	}

	return err
}

// Recording returns the directories for recording runs that are then sent to the store of d, if that store is
// on a server.
func (d Dirs) Recording() Dirs {
	if d.Store != "" {
		d.Team = d.StoreName()
		d.Store = ""
	}
	return d
}

// SendRecorded sends to a server the ended runs that this command and earlier ones have recorded, and tells
// the user about each. A run that the server refuses is not sent again, and does not prevent the other runs
// from being sent; SendRecorded tells the user but returns no error. a.Dirs must be team.Recording().
func (a *App) SendRecorded(ctx context.Context, team Dirs) error {
	place := team.StoreName()
	ids, sizes, err := a.Dirs.unsent(ctx)
	settled := map[string]store.Size{}
	for _, id := range ids {
		if !sizes[id].Ended { // the run has been resumed
			continue
		}

		sent, failed := a.Dirs.Transfer(ctx, team, []string{id})
		for _, s := range sent {
			if s.Longer {
				a.note("%s; chokepoint pull %s copies it here", LongerNote(s, place), s.Run)
				continue
			}

			a.note("run %s was sent to %s", s.Run, place)
			if s.Name != "" {
				a.noteText(NameNote(s))
			}
		}

		if failed != nil && !store.OfRun(failed) {
			err = failed // stop, because the other runs would fail, too
			break
		}

		if failed != nil {
			a.note("not sent to %s: %v", place, failed)
		}

		settled[id] = sizes[id]
	}

	if len(settled) == 0 {
		return err
	}
	return errors.Join(err, a.Dirs.settle(ctx, settled))
}

// LongerNote explains why a run was not sent to a store.
func LongerNote(s store.Sent, place string) string {
	return fmt.Sprintf("run %s: %s has more of it, added there or sent from elsewhere", s.Run, place)
}

// NameNote explains why a sent run has no name in the other store.
func NameNote(s store.Sent) string {
	return "run " + s.Run + " has no name there: another run is called " + s.Name
}

// unsent returns the ids of the runs that have not been sent, and the sizes of all runs.
func (d Dirs) unsent(ctx context.Context) (ids []string, sizes map[string]store.Size, err error) {
	st, err := d.readStore(ctx)
	if errors.Is(err, store.ErrNone) {
		return nil, nil, nil
	}

	if err != nil {
		return nil, nil, err
	}

	sizes, err = st.Sizes(ctx)
	if err == nil && len(sizes) > 0 {
		ids, err = st.Unsent(ctx, d.Team)
	}

	return ids, sizes, errors.Join(err, st.Close())
}

// settle records that runs have been sent. A run that has grown beyond its size in sizes must be sent again.
func (d Dirs) settle(ctx context.Context, sizes map[string]store.Size) error {
	st, err := store.Open(ctx, d.StoreFile())
	if err != nil {
		return err
	}

	for id, size := range sizes {
		err = errors.Join(err, st.SetSent(ctx, id, size))
	}

	return errors.Join(err, st.Close())
}
