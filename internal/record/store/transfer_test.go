package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// ended stores a run with four trials, a note, a name, a headline, results and an end.
func ended(t *testing.T, s *Store, id string) {
	t.Helper()
	ctx := t.Context()
	run := sampleRun(id)
	run.Name = "of-" + id
	must(t, s.CreateRun(ctx, run))
	for i := range 4 {
		must(t, s.AppendTrial(ctx, sampleTrial(id, i+1)))
	}

	must(t, s.AddNote(ctx, id, formatNote))
	must(t, s.EndRun(ctx, id, record.RunInterrupted, "Ctrl-C <&>", sampleStart.Add(time.Minute)))
	must(t, s.SetHeadline(ctx, id, sampleHeadline()))
	must(t, s.SetResults(ctx, id, resultsAt(1)))
}

// whole reads all that a store has of a run.
func whole(t *testing.T, s *Store, id string) []any {
	t.Helper()
	run, err := s.Find(t.Context(), id)
	must(t, err)
	trials, err := s.Trials(t.Context(), id)
	must(t, err)
	heads, err := s.Runs(t.Context())
	must(t, err)
	results, err := s.ResultHeads(t.Context())
	must(t, err)
	cells, err := s.CellsOfRun(t.Context(), id)
	must(t, err)
	return []any{run, trials, heads, results, cells}
}

// A run arrives unchanged on every kind of store, once; rows that are added to it later arrive, too.
func TestSend(t *testing.T) {
	for name, pair := range map[string][2]func(*testing.T) *Store{
		"file to file":     {newStore, newStore},
		"file to server":   {newStore, newServer},
		"server to file":   {newServer, newStore},
		"server to server": {newServer, newServer},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			from, to := pair[0](t), pair[1](t)
			ended(t, from, "r1")
			first, err := from.Send(ctx, to, "r1")
			must(t, err)
			if !first.Changed || first.Name != "" || len(first.Hash) != 64 {
				t.Errorf("sent: got %+v, want a change with a hash", first)
			}

			if d := cmp.Diff(whole(t, to, "r1"), whole(t, from, "r1"), same); d != "" {
				t.Errorf("the copy differs (-got +want):\n%s", d)
			}

			again, err := from.Send(ctx, to, "r1")
			must(t, err)
			if again.Changed || again.Hash != first.Hash {
				t.Errorf("sent again: got %+v, want no change and hash %s", again, first.Hash)
			}

			must(t, from.EndRun(ctx, "r1", record.RunRunning, "resumed", sampleStart.Add(time.Hour)))
			if _, err := from.Send(ctx, to, "r1"); !errors.As(err, new(*UnendedError)) {
				t.Errorf("sent while it goes on: got %v, want an UnendedError", err)
			}

			failed := sampleTrial("r1", 5)
			failed.Status = record.TrialFailed
			must(t, from.AppendTrial(ctx, failed))
			must(t, from.AddNote(ctx, "r1", Note{Experiments: []string{"r9"}}))
			must(t, from.EndRun(ctx, "r1", record.RunDone, "", sampleStart.Add(2*time.Hour)))
			must(t, from.SetResults(ctx, "r1", nil))
			longer, err := from.Send(ctx, to, "r1")
			must(t, err)
			if !longer.Changed || longer.Hash == first.Hash {
				t.Errorf("sent after it went on: got %+v, want a change and another hash", longer)
			}

			if d := cmp.Diff(whole(t, to, "r1"), whole(t, from, "r1"), same); d != "" {
				t.Errorf("the longer copy differs (-got +want):\n%s", d)
			}

			back, err := to.Send(ctx, from, "r1")
			must(t, err)
			must(t, from.AddNote(ctx, "r1", formatNote))
			shorter, err := to.Send(ctx, from, "r1")
			if err != nil || back.Changed || back.Longer || shorter.Changed || !shorter.Longer {
				t.Errorf("sent back: got %+v and, with more there, %+v, %v", back, shorter, err)
			}

			must(t, to.Verify(ctx))
		})
	}
}

// Other content, a deleted run and an unknown run are refused; a name that is taken is left out.
func testSendRefused(t *testing.T, to *Store) {
	ctx := t.Context()
	from := newStore(t)
	ended(t, from, "r1")
	ended(t, to, "r1")
	must(t, to.AddNote(ctx, "r1", formatNote))
	must(t, to.AppendTrial(ctx, sampleTrial("r1", 5)))
	before := whole(t, to, "r1")
	sent, err := from.Send(ctx, to, "r1")
	if err != nil || !sent.Longer || sent.Changed {
		t.Errorf("more content: got %+v, %v, want that it is longer there", sent, err)
	}

	must(t, from.AppendTrial(ctx, sampleTrial("r1", 6)))
	sent, err = from.Send(ctx, to, "r1")
	if other, ok := errors.AsType[*ContentError](err); !ok || other.Ours != sent.Hash ||
		other.Theirs == other.Ours || !strings.Contains(err.Error(), to.path) {
		t.Errorf("other content: got %v, want a ContentError", err)
	}

	must(t, from.AddNote(ctx, "r1", Note{Caveats: []record.Caveat{{Kind: "k", Text: "elsewhere"}}}))
	if _, err := from.Send(ctx, to, "r1"); !errors.As(err, new(*ContentError)) {
		t.Errorf("another second note: got %v, want a ContentError", err)
	}

	if d := cmp.Diff(whole(t, to, "r1"), before, same); d != "" {
		t.Errorf("what was refused has changed the run (-got +want):\n%s", d)
	}

	must(t, to.Remove(ctx, "r1"))
	if _, err := from.Send(ctx, to, "r1"); !errors.As(err, new(*DeletedError)) {
		t.Errorf("a run that was deleted there: got %v, want a DeletedError", err)
	}

	taken := sampleRun("r2")
	taken.Name = "of-r3"
	must(t, to.CreateRun(ctx, taken))
	ended(t, from, "r3")
	sent, err = from.Send(ctx, to, "r3")
	run, findErr := to.Find(ctx, "r3")
	if err != nil || findErr != nil || sent.Name != "of-r3" || run.Name != "" {
		t.Errorf("a name that is taken: got %+v, %v, run %q, %v, want the run without a name", sent, err,
			run.Name, findErr)
	}

	if _, err := from.Send(ctx, to, "r4"); err == nil {
		t.Error("a run that does not exist was sent")
	}
}

// If the server is lost in the middle of a run, or changes a row, it stores nothing of the run.
func TestSendIsWholeOrNothing(t *testing.T) {
	for name, harm := range map[string]string{
		"connection lost": `PERFORM pg_terminate_backend(pg_backend_pid())`,
		"refused":         `RAISE EXCEPTION 'no'`,
		"changed":         `NEW.body := NEW.body || '\x00'`,
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			from, to := newStore(t), newServer(t)
			ended(t, from, "r1")
			_, err := to.db.ExecContext(ctx, `CREATE FUNCTION harm() RETURNS trigger LANGUAGE plpgsql AS $$
				BEGIN IF NEW.row_index = 3 THEN `+harm+`; END IF; RETURN NEW; END $$;
				CREATE TRIGGER harm BEFORE INSERT ON trials FOR EACH ROW EXECUTE FUNCTION harm()`)
			must(t, err)
			_, err = from.Send(ctx, to, "r1")
			if err == nil || name == "changed" != errors.As(err, new(*ContentError)) {
				t.Errorf("got %v, want an error, a ContentError if it was changed", err)
			}

			heads, err := to.Runs(ctx)
			if err != nil || len(heads) > 0 {
				t.Errorf("left: got %+v, %v, want nothing", heads, err)
			}

			_, err = to.db.ExecContext(ctx, `DROP TRIGGER harm ON trials`)
			must(t, err)
			_, err = from.Send(ctx, to, "r1")
			must(t, err)
			if d := cmp.Diff(whole(t, to, "r1"), whole(t, from, "r1"), same); d != "" {
				t.Errorf("sent again it differs (-got +want):\n%s", d)
			}
		})
	}
}

// Beds that send the same run at once store it once.
func TestSendAtOnce(t *testing.T) {
	ctx := t.Context()
	place := apart.Postgres(t)
	from := newStore(t)
	ended(t, from, "r1")
	errs := make(chan error)
	for range 4 {
		reader, err := OpenReadOnly(ctx, from.path)
		must(t, err)
		to, err := Open(ctx, place)
		must(t, err)
		go func() {
			_, err := reader.Send(ctx, to, "r1")
			errs <- errors.Join(err, reader.Close(), to.Close())
		}()
	}

	for range 4 {
		must(t, <-errs)
	}

	s, err := OpenReadOnly(ctx, place)
	must(t, err)
	defer s.Close()
	if d := cmp.Diff(whole(t, s, "r1"), whole(t, from, "r1"), same); d != "" {
		t.Errorf("the copy differs (-got +want):\n%s", d)
	}
}

// Sizes and Unsent list the runs that have grown, and those that have yet to be sent.
func testSizes(t *testing.T, s *Store) {
	ctx := t.Context()
	ended(t, s, "r1")
	must(t, s.CreateRun(ctx, sampleRun("r2")))
	sizes, err := s.Sizes(ctx)
	must(t, err)
	want := map[string]Size{"r1": {Trials: 4, Notes: 1, Ends: 1, Ended: true}, "r2": {}}
	if d := cmp.Diff(sizes, want); d != "" {
		t.Errorf("sizes differ (-got +want):\n%s", d)
	}

	s.SendTo("postgres://b")
	must(t, s.AddNote(ctx, "r2", formatNote))
	s.SendTo("postgres://a")
	must(t, s.CreateRun(ctx, sampleRun("r3")))
	must(t, s.AddNote(ctx, "r1", formatNote))
	must(t, s.EndRun(ctx, "r2", record.RunDone, "", sampleStart))
	must(t, s.SetSent(ctx, "r1", Size{Trials: 4, Notes: 2, Ends: 1, Ended: true}))
	must(t, s.SetSent(ctx, "r2", Size{Notes: 1})) // it ended since
	for place, want := range map[string][]string{"postgres://a": {"r2", "r3"}, "postgres://b": nil} {
		got, err := s.Unsent(ctx, place)
		if d := cmp.Diff(got, want); d != "" || err != nil {
			t.Errorf("unsent to %s: %v (-got +want):\n%s", place, err, d)
		}
	}
}

// While a server is slow, others write to the file to which a run is copied.
func TestSendWaitsOutsideTheFile(t *testing.T) {
	ctx := t.Context()
	place := apart.Postgres(t)
	from, err := Open(ctx, place)
	must(t, err)
	defer from.Close()
	ended(t, from, "r1")
	execute(t, place, `CREATE FUNCTION slow(body bytea) RETURNS bytea LANGUAGE plpgsql AS $$ BEGIN
			IF current_query() NOT LIKE '%sha256%' THEN PERFORM pg_advisory_xact_lock_shared(7); END IF;
			RETURN body; END $$;
		ALTER TABLE trials RENAME TO slow_trials;
		CREATE VIEW trials AS SELECT run, id, row, block, row_index, cell, attempt, status, started_ns,
			slow(body) AS body, series FROM slow_trials`)
	admin, err := connect(place, modeWrite)
	must(t, err)
	defer admin.Close()
	admin.SetMaxOpenConns(1)
	_, err = admin.ExecContext(ctx, `SELECT pg_advisory_lock(7)`)
	must(t, err)
	to := newStore(t)
	done := make(chan error, 1)
	go func() { _, err := from.Send(ctx, to, "r1"); done <- err }()
	waiting(t, admin, 1)
	other, err := Open(ctx, to.path)
	must(t, err)
	defer other.Close()
	if err := other.CreateRun(ctx, sampleRun("r2")); err != nil {
		t.Errorf("meanwhile: got %v, want that another run is stored", err)
	}

	_, err = admin.ExecContext(ctx, `SELECT pg_advisory_unlock(7)`)
	must(t, errors.Join(err, <-done))
	must(t, to.Verify(ctx))
}

// Trials are sent many at once, as far as they are small.
func TestSendInFewSteps(t *testing.T) {
	ctx := t.Context()
	from, to := newStore(t), newServer(t)
	ended(t, from, "r1")
	for i, size := range []int{bytesAtOnce / 2, 2 * bytesAtOnce, bytesAtOnce / 2, bytesAtOnce / 2} {
		_, err := from.db.ExecContext(ctx, `INSERT INTO trials SELECT run, $1, $1, block, row_index, cell,
			attempt, status, started_ns, body, randomblob($2) FROM trials LIMIT 1`,
			fmt.Sprint("x", i), size)
		must(t, err)
	}

	_, err := to.db.ExecContext(ctx, `CREATE TABLE steps (n int);
		CREATE FUNCTION step() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN INSERT INTO steps VALUES (1); RETURN NULL; END $$;
		CREATE TRIGGER step AFTER INSERT ON trials EXECUTE FUNCTION step()`)
	must(t, err)
	_, err = from.Send(ctx, to, "r1")
	must(t, err)
	var steps int
	must(t, to.db.QueryRowContext(ctx, `SELECT count(*) FROM steps`).Scan(&steps))
	if steps != 4 { // the small ones with x0, x1, x2, x3
		t.Errorf("got %d statements, want 4 for 8 trials of which 4 are large", steps)
	}
}

// A step of a copy ends when the server is silent.
func TestAnswered(t *testing.T) {
	wait := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	if err := answered(t.Context(), time.Millisecond, wait); err != errSilence {
		t.Errorf("a silent server: got %v, want %v", err, errSilence)
	}

	must(t, answered(t.Context(), time.Minute, func(ctx context.Context) error { return ctx.Err() }))
}

// waiting returns when as many programs wait for locks on a server.
func waiting(t *testing.T, q asker, programs int) {
	t.Helper()
	for n := 0; n < programs; time.Sleep(5 * time.Millisecond) {
		must(t, q.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_locks WHERE NOT granted`).Scan(&n))
	}
}

// behind returns how many of them wait for another writer of the same thing.
func behind(t *testing.T, q asker) (n int) {
	t.Helper()
	must(t, q.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_locks WHERE NOT granted AND
		locktype = 'advisory'`).Scan(&n))
	return n
}

// A run that is deleted while it is sent does not come back.
func TestSendBesideRemove(t *testing.T) {
	ctx := t.Context()
	place := apart.Postgres(t)
	from := newStore(t)
	ended(t, from, "r1")
	to, err := Open(ctx, place)
	must(t, err)
	defer to.Close()
	_, err = from.Send(ctx, to, "r1")
	must(t, err)
	admin, err := connect(place, modeWrite)
	must(t, err)
	defer admin.Close()
	tx, err := admin.BeginTx(ctx, nil)
	must(t, err)
	_, err = tx.ExecContext(ctx, `LOCK TABLE runs IN ACCESS EXCLUSIVE MODE`) // stops Send after it has read removed
	must(t, err)
	sent, removed := make(chan error, 1), make(chan error, 1)
	go func() { _, err := from.Send(ctx, to, "r1"); sent <- err }()
	waiting(t, tx, 1)
	remover, err := Open(ctx, place)
	must(t, err)
	defer remover.Close()
	go func() { removed <- remover.Remove(ctx, "r1") }()
	waiting(t, tx, 2)
	if behind(t, tx) != 1 {
		t.Error("Remove does not wait until the run is sent")
	}

	must(t, errors.Join(tx.Commit(), <-sent, <-removed))
	heads, err := to.Runs(ctx)
	must(t, err)
	if len(heads) > 0 {
		t.Errorf("got %+v, want that the run is gone", heads)
	}
}

// Results that several programs derive at once are stored, and not those of a shorter run.
func TestResultsAtOnce(t *testing.T) {
	ctx := t.Context()
	place := apart.Postgres(t)
	s, err := Open(ctx, place)
	must(t, err)
	defer s.Close()
	ended(t, s, "r1")
	admin, err := connect(place, modeWrite)
	must(t, err)
	defer admin.Close()
	tx, err := admin.BeginTx(ctx, nil)
	must(t, err)
	_, err = tx.ExecContext(ctx, `LOCK TABLE cell_results IN ACCESS EXCLUSIVE MODE`)
	must(t, err)
	errs := make(chan error)
	for range 2 {
		other, err := Open(ctx, place)
		must(t, err)
		go func() {
			errs <- errors.Join(other.KeepResults(ctx, "r1", resultsAt(2), Size{Trials: 4, Notes: 1}),
				other.Close())
		}()
	}

	waiting(t, tx, 2)
	if behind(t, tx) != 1 {
		t.Error("they do not wait for each other")
	}

	must(t, errors.Join(tx.Commit(), <-errs, <-errs))
	must(t, s.KeepResults(ctx, "r1", resultsAt(3), Size{Trials: 3, Notes: 1}))
	cells, err := s.CellsOfRun(ctx, "r1")
	must(t, err)
	if got := cells[0].Metrics["goodput_bps"].Median; got != 2 {
		t.Errorf("median: got %v, want 2", got)
	}
}

// A transaction that a cancelled context has ended says no more than that.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	err := newServer(t).inTx(ctx, func(tx *sql.Tx) error {
		cancel()
		for {
			if _, err := tx.ExecContext(t.Context(), `SELECT 1`); errors.Is(err, sql.ErrTxDone) {
				return ctx.Err()
			}
		}
	})
	if err == nil || err.Error() != context.Canceled.Error() {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}
