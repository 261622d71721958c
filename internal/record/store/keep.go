package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Keeper stores the trials of a run as they end. If another program has locked the store, trials wait in
// memory until they can be stored. Stored trials also stay in memory, up to keptBytes. There is thus a result
// even if the store is lost during the run.
type Keeper struct {
	Store *Store
	Run   string
	// Waits is called when the number of waiting trials changes, with that number and the reason.
	Waits func(n int, why error)

	trials  []*packed // in the order in which they ended
	bytes   int
	waiting int
}

// keptBytes is the maximum memory for stored trials, enough for a hundred short ones. Without a limit,
// memory would grow for the whole run.
const keptBytes = 1 << 20

// AppendTrial stores a trial after the waiting trials. A locked store is not an error.
func (k *Keeper) AppendTrial(ctx context.Context, t record.Trial) error {
	p, err := k.Store.pack(t)
	if err != nil {
		return err
	}

	k.trials = append(k.trials, p)
	k.bytes += len(p.body) + len(p.series)
	err = k.flush(ctx)
	if locked(err) {
		return nil
	}

	return roomHint(err, roomToRun)
}

// roomHint adds a hint to the error of a full disk.
func roomHint(err error, hint string) error {
	if codeOf(err) != sqlite3.SQLITE_FULL {
		return err
	}
	return check.WithHint(err, hint)
}

// roomToRun is the hint for a full disk. The user has to free some space first, because even deleting runs
// needs space.
const roomToRun = "make some room on that file system, after which chokepoint delete --keep 50 removes old " +
	"runs; then resume the run"

// locked reports whether another program holds a lock on the store.
func locked(err error) bool {
	code := codeOf(err)
	return code == sqlite3.SQLITE_BUSY || code == sqlite3.SQLITE_LOCKED
}

// Patiently retries f while the store is locked, for at most patience.
func Patiently(ctx context.Context, patience time.Duration, f func() error) error {
	return repeat(ctx, patience, 100*time.Millisecond, f)
}

func repeat(ctx context.Context, patience, pause time.Duration, f func() error) error {
	for end := time.Now().Add(patience); ; {
		err := f()
		if !locked(err) || time.Now().After(end) {
			return err
		}

		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// flush stores the waiting trials until one cannot be stored.
func (k *Keeper) flush(ctx context.Context) error {
	n := 0
	err := error(nil)
	for _, t := range k.trials {
		if !t.stored && err == nil {
			err = k.Store.insert(ctx, t)
			if check.Is[*DuplicateError](err) { // it was stored before, but could not be read back
				err = k.Store.confirm(ctx, t)
			}

			t.stored = err == nil
		}

		if !t.stored {
			n++
		}
	}

	if n != k.waiting && k.Waits != nil {
		k.Waits(n, err)
	}

	k.waiting = n
	for len(k.trials) > 0 && k.bytes > keptBytes && k.trials[0].stored {
		k.bytes -= len(k.trials[0].body) + len(k.trials[0].series)
		k.trials[0] = nil // let the garbage collector free it
		k.trials = k.trials[1:]
	}

	return err
}

// Settle stores the waiting trials, retrying for at most patience or until ctx is cancelled. Then it
// verifies that the store contains all trials.
func (k *Keeper) Settle(ctx context.Context, patience time.Duration) error {
	waiting := ctx
	ctx = context.WithoutCancel(ctx)
	err := Patiently(waiting, patience, func() error { return k.flush(ctx) })
	if err != nil {
		return fmt.Errorf("not stored, and shown from memory: %s: %w", unit.Count(k.waiting, "trial"),
			roomHint(err, roomToRun))
	}

	has, err := k.stored(ctx)
	missing := 0
	for _, t := range k.trials {
		if !has[t.ID] {
			missing++
		}
	}

	if err == nil && missing > 0 {
		err = errors.New("they are not there any more")
	}

	if err == nil && len(k.trials) > 0 {
		err = k.Store.confirm(ctx, k.trials[len(k.trials)-1])
	}

	if err != nil {
		return &LostError{
			What: fmt.Sprintf("%d of %d trials", max(missing, 1), len(k.trials)),
			Path: k.Store.path,
			Err:  err,
		}
	}

	return nil
}

// Release drops the trials from memory, because later stages need the space. All trials must have been
// stored.
func (k *Keeper) Release() {
	k.trials = nil
	k.bytes = 0
}

// Count returns the number of trials that Trials yields, including those from before a resume.
func (k *Keeper) Count(ctx context.Context) int {
	has, _ := k.stored(ctx) // if the store is lost, count the trials in memory
	for _, t := range k.trials {
		has[t.ID] = true
	}
	return len(has)
}

// stored returns the ids of the trials in the store.
func (k *Keeper) stored(ctx context.Context) (map[string]bool, error) {
	entries, err := k.Store.Index(ctx, k.Run)
	has := map[string]bool{}
	for _, e := range entries {
		has[e.Trial] = true
	}

	return has, err
}

// Trials yields the trials of the run from the store or, if that fails, from memory. For a trial that is in
// neither, it yields an error.
func (k *Keeper) Trials(ctx context.Context) iter.Seq2[record.Trial, error] {
	return func(yield func(record.Trial, error) bool) {
		mine := map[string]*packed{}
		for _, t := range k.trials {
			mine[t.ID] = t
		}

		entries, err := k.Store.Index(ctx, k.Run)
		if err != nil && len(mine) == 0 {
			yield(record.Trial{}, err)
		}

		stored := &reader{store: k.Store, run: k.Run, left: entries}
		for _, e := range entries {
			t, err := stored.next(ctx)
			p := mine[e.Trial]
			if err != nil && p != nil {
				t, err = k.Store.unpack(p)
			}

			delete(mine, e.Trial)
			if !yield(t, err) {
				return
			}
		}

		for _, p := range k.trials {
			if mine[p.ID] == nil {
				continue
			}

			if t, err := k.Store.unpack(p); !yield(t, err) {
				return
			}
		}
	}
}
