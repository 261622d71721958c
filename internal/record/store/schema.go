package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// migrations brings a store from version i to version i+1. They only go forward, and an entry that has been
// released never changes. The format is described in docs/reference/store.md; testdata has one file of each
// version.
var migrations = []string{schema1, schema2}

// schema1: the head of a run and what was learnt about it later (notes), how it ended, its trials without
// their series, and the series.
const schema1 = `
CREATE TABLE runs (
	id         TEXT PRIMARY KEY,
	started_ns INTEGER NOT NULL,
	head       BLOB NOT NULL          -- zstd of record.Run as JSON
) WITHOUT ROWID;
CREATE TABLE run_notes (
	seq  INTEGER PRIMARY KEY,
	run  TEXT NOT NULL REFERENCES runs(id),
	body BLOB NOT NULL                -- zstd of store.Note as JSON
);
CREATE INDEX run_notes_run ON run_notes(run, seq);
CREATE TABLE run_ends (
	seq      INTEGER PRIMARY KEY,
	run      TEXT NOT NULL REFERENCES runs(id),
	status   TEXT NOT NULL,
	reason   TEXT NOT NULL,
	ended_ns INTEGER NOT NULL
);
CREATE INDEX run_ends_run ON run_ends(run, seq);
CREATE TABLE trials (
	run        TEXT NOT NULL REFERENCES runs(id),
	id         TEXT NOT NULL,
	row        TEXT NOT NULL,
	block      INTEGER NOT NULL,
	row_index  INTEGER NOT NULL,
	cell       TEXT NOT NULL,
	attempt    INTEGER NOT NULL,
	status     TEXT NOT NULL,
	started_ns INTEGER NOT NULL,
	body       BLOB NOT NULL,         -- zstd of record.Trial as JSON, without blobs
	PRIMARY KEY (run, id),
	UNIQUE (run, row, attempt)
);
CREATE TABLE blobs (
	run   TEXT NOT NULL,
	trial TEXT NOT NULL,
	path  TEXT NOT NULL,              -- place in the trial: traffic/flows/0/sent …
	kind  TEXT NOT NULL,              -- 'table' (record.Table) or 'raw' (as received)
	body  BLOB NOT NULL,              -- zstd
	PRIMARY KEY (run, trial, path),
	FOREIGN KEY (run, trial) REFERENCES trials(run, id)
) WITHOUT ROWID;
CREATE TRIGGER runs_fixed      BEFORE UPDATE ON runs      BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER runs_kept       BEFORE DELETE ON runs      BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER run_notes_fixed BEFORE UPDATE ON run_notes BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER run_notes_kept  BEFORE DELETE ON run_notes BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER run_ends_fixed  BEFORE UPDATE ON run_ends  BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER run_ends_kept   BEFORE DELETE ON run_ends  BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER trials_fixed    BEFORE UPDATE ON trials    BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER trials_kept     BEFORE DELETE ON trials    BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER blobs_fixed     BEFORE UPDATE ON blobs     BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER blobs_kept      BEFORE DELETE ON blobs     BEGIN SELECT RAISE(ABORT, 'append-only'); END;
`

// schema2: a trial's series in one piece beside it, by a dictionary; what list shows; and the removal of
// whole runs. Trials of schema 1 stay as they are.
const schema2 = `
ALTER TABLE trials ADD COLUMN base TEXT;   -- the trial that is the dictionary of body and series; '' = none
ALTER TABLE trials ADD COLUMN series BLOB; -- zstd; NULL in trials of schema 1, which have blobs
CREATE INDEX trials_status ON trials(run, status);
CREATE TABLE listing (
	run        TEXT PRIMARY KEY REFERENCES runs(id),
	started_ns INTEGER NOT NULL,
	plan       TEXT NOT NULL,
	lab        TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE removed (                     -- runs whose rows may be deleted
	run        TEXT PRIMARY KEY,
	removed_ns INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TRIGGER listing_fixed BEFORE UPDATE ON listing BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER removed_fixed BEFORE UPDATE ON removed BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER removed_kept  BEFORE DELETE ON removed BEGIN SELECT RAISE(ABORT, 'append-only'); END;
DROP TRIGGER runs_kept;
DROP TRIGGER run_notes_kept;
DROP TRIGGER run_ends_kept;
DROP TRIGGER trials_kept;
DROP TRIGGER blobs_kept;
CREATE TRIGGER runs_kept BEFORE DELETE ON runs WHEN OLD.id NOT IN (SELECT run FROM removed)
	BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER listing_kept BEFORE DELETE ON listing WHEN OLD.run NOT IN (SELECT run FROM removed)
	BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER run_notes_kept BEFORE DELETE ON run_notes WHEN OLD.run NOT IN (SELECT run FROM removed)
	BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER run_ends_kept BEFORE DELETE ON run_ends WHEN OLD.run NOT IN (SELECT run FROM removed)
	BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER trials_kept BEFORE DELETE ON trials WHEN OLD.run NOT IN (SELECT run FROM removed)
	BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER blobs_kept BEFORE DELETE ON blobs WHEN OLD.run NOT IN (SELECT run FROM removed)
	BEGIN SELECT RAISE(ABORT, 'append-only'); END;
`

// NewerError says that a newer program wrote the store.
type NewerError struct {
	Path  string
	Has   int // version of the file
	Knows int // newest version this program reads
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("open store %s: it has schema version %d, this program knows up to %d",
		e.Path, e.Has, e.Knows)
}

// Hint says what to do about it.
func (e *NewerError) Hint() string {
	return "use the newer chokepoint that wrote it, or choose another data directory with XDG_DATA_HOME"
}

// version reads the schema's version; 0 is an empty file. The number also stands in the file's
// user_version, so that other tools can tell.
func version(ctx context.Context, q interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
}) (int, error) {
	var tables int
	err := q.QueryRowContext(ctx,
		`SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'schema_version'`).Scan(&tables)
	if err != nil || tables == 0 {
		return 0, err
	}
	var v int
	err = q.QueryRowContext(ctx, `SELECT coalesce(max(version), 0) FROM schema_version`).Scan(&v)
	return v, err
}

// migrate brings the store forward, in one transaction.
func migrate(ctx context.Context, db *sql.DB, path string, steps []string) error {
	err := checkReadable(ctx, db, path, steps)
	if !errors.Is(err, ErrNone) && !errors.Is(err, errOlder) {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("lock store %s: %v", path, err)
	}
	if err := advance(ctx, tx, steps); err != nil {
		return errors.Join(fmt.Errorf("set up schema of store %s: %v", path, err), tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("set up schema of store %s: %v", path, err)
	}
	return nil
}

// advance applies what is missing. The version is read again, because another process may have been faster
// to take the lock.
func advance(ctx context.Context, tx *sql.Tx, steps []string) error {
	const table = `CREATE TABLE IF NOT EXISTS schema_version (version INTEGER PRIMARY KEY)`
	if _, err := tx.ExecContext(ctx, table); err != nil {
		return err
	}
	has, err := version(ctx, tx)
	if err != nil {
		return err
	}
	for v := has; v < len(steps); v++ {
		if _, err := tx.ExecContext(ctx, steps[v]); err != nil {
			return fmt.Errorf("to version %d: %v", v+1, err)
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO schema_version VALUES (?)`, v+1); err != nil {
			return err
		}
	}
	_, err = tx.ExecContext(ctx, fmt.Sprintf(`PRAGMA user_version = %d`, len(steps)))
	return err
}

// errOlder says that a store must be brought forward before it is read.
var errOlder = errors.New("it has an older schema")

// checkReadable is migrate for a reader, which may not change the file.
func checkReadable(ctx context.Context, db *sql.DB, path string, steps []string) error {
	has, err := version(ctx, db)
	switch {
	case err != nil:
		return fmt.Errorf("read schema of store %s: %w", path, err)
	case has == 0:
		return ErrNone
	case has > len(steps):
		return &NewerError{Path: path, Has: has, Knows: len(steps)}
	case has < len(steps):
		return errOlder
	}
	return nil
}
