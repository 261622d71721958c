package store

import (
	"context"
	"database/sql"
	"fmt"
)

// schemaVersion is the user_version of the file. Versions 1 to 3 were never released.
const schemaVersion = 4

// schema has tables for the head of a run, for later additions (notes), for how it ended, for what lists show
// (line and labels), and for its trials.
const schema = `
CREATE TABLE runs (
	id         TEXT PRIMARY KEY,
	stored_ns  INTEGER NOT NULL,      -- by which runs are in order
	started_ns INTEGER NOT NULL,
	plan       TEXT NOT NULL,
	lab        TEXT NOT NULL,
	line       TEXT NOT NULL,         -- store.Line as JSON
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
CREATE TABLE run_labels (             -- the last of a kind counts
	seq  INTEGER PRIMARY KEY,
	run  TEXT NOT NULL REFERENCES runs(id),
	kind TEXT NOT NULL,               -- name, or headline: record.Headline as JSON
	text TEXT NOT NULL                -- empty: none any more
);
CREATE INDEX run_labels_run ON run_labels(run, kind, seq);
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
	body       BLOB NOT NULL,         -- zstd of record.Trial as JSON, without series
	series     BLOB NOT NULL,         -- zstd
	PRIMARY KEY (run, id),
	UNIQUE (run, row, attempt)
);
CREATE INDEX trials_status ON trials(run, status, attempt);
CREATE TABLE removed (                    -- runs whose rows may be deleted
	run        TEXT PRIMARY KEY,
	removed_ns INTEGER NOT NULL
) WITHOUT ROWID;
`

// schemaTriggers has triggers that reject all changes except the removal of a whole run.
const schemaTriggers = `CREATE TRIGGER runs_fixed      BEFORE UPDATE ON runs      BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER run_notes_fixed BEFORE UPDATE ON run_notes BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER run_ends_fixed  BEFORE UPDATE ON run_ends  BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER run_labels_fixed BEFORE UPDATE ON run_labels
	BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER trials_fixed    BEFORE UPDATE ON trials    BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER removed_fixed   BEFORE UPDATE ON removed   BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER removed_kept    BEFORE DELETE ON removed   BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER runs_kept BEFORE DELETE ON runs WHEN OLD.id NOT IN (SELECT run FROM removed)
	BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER run_notes_kept BEFORE DELETE ON run_notes WHEN OLD.run NOT IN (SELECT run FROM removed)
	BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER run_ends_kept BEFORE DELETE ON run_ends WHEN OLD.run NOT IN (SELECT run FROM removed)
	BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER run_labels_kept BEFORE DELETE ON run_labels WHEN OLD.run NOT IN (SELECT run FROM removed)
	BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER trials_kept BEFORE DELETE ON trials WHEN OLD.run NOT IN (SELECT run FROM removed)
	BEGIN SELECT RAISE(ABORT, 'append-only'); END;
`

// schemaOfResults has the table for a cell's history, whose data are derived from trials. It is created when
// the first results are stored. Its rows may be replaced at any time.
const schemaOfResults = `
CREATE TABLE IF NOT EXISTS cell_results ( -- derived from the trials
	cell     TEXT NOT NULL,           -- id of the factors but firmware; empty: the run itself
	run      TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
	firmware TEXT NOT NULL,           -- level of that factor
	body     TEXT NOT NULL,           -- record.CellResult, or record.ResultFacts of the run, as JSON
	PRIMARY KEY (cell, run, firmware)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS cell_results_run ON cell_results(run, cell);
`

// schemaOfBeds has the tables of testbeds and of users' requests to them. It is created when the first
// testbed reports. Rows of beds are replaced at any time. A request is changed only once, by its answer.
const schemaOfBeds = `
CREATE TABLE IF NOT EXISTS beds (
	name    TEXT PRIMARY KEY,
	host    TEXT NOT NULL,            -- on which the testbed's service runs
	seen_ns INTEGER NOT NULL,         -- when it reported last
	body    TEXT NOT NULL             -- store.Bed as JSON
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS bed_requests (
	id          TEXT PRIMARY KEY,
	bed         TEXT NOT NULL REFERENCES beds(name) ON DELETE CASCADE,
	asked_ns    INTEGER NOT NULL,
	body        TEXT NOT NULL,        -- store.BedRequest as JSON, as it was asked
	answered_ns INTEGER NOT NULL,     -- 0: not yet
	refused     TEXT NOT NULL,        -- why the testbed refused; empty: it accepted
	job         TEXT NOT NULL         -- that the testbed started or cancelled
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS bed_requests_bed ON bed_requests(bed, asked_ns);
`

// VersionError is returned for a store whose schema has a version that this program does not use.
type VersionError struct {
	Path  string
	Has   int
	Knows int // newest version that this program supports
}

func (e *VersionError) Error() string {
	has := fmt.Sprintf("open store %s: it has schema version %d, ", e.Path, e.Has)
	switch {
	case e.Has > e.Knows:
		return has + fmt.Sprintf("this program knows up to %d", e.Knows)
	case OnServer(e.Path):
		return has + fmt.Sprintf("this program needs %d", e.Knows)
	}
	return has + "an older format that was never released"
}

// Hint explains what the user can do.
func (e *VersionError) Hint() string {
	switch {
	case OnServer(e.Path) && e.Has < e.Knows:
		return "the owner of the database updates it with chokepoint push --to URL"
	case OnServer(e.Path):
		return "use the newer chokepoint that wrote it"
	case e.Has < e.Knows:
		return "move that file away and measure again, or choose another data directory with XDG_DATA_HOME"
	}
	return "use the newer chokepoint that wrote it, or choose another data directory with XDG_DATA_HOME"
}

// checkVersion returns ErrNone for a file without a schema, and a *VersionError for any other version than
// schemaVersion.
func checkVersion(ctx context.Context, q asker, path string) error {
	var has int
	if err := q.QueryRowContext(ctx, `PRAGMA user_version`).Scan(&has); err != nil {
		return fmt.Errorf("read schema of store %s: %w", path, err)
	}

	switch has {
	case schemaVersion:
		return nil
	case 0:
		return ErrNone
	}

	return &VersionError{Path: path, Has: has, Knows: schemaVersion}
}

// createSchema creates the schema in an empty file, unless another process has already done so.
func (s *Store) createSchema(ctx context.Context) error {
	err := s.inTx(ctx, func(tx *sql.Tx) error {
		if err := checkVersion(ctx, tx, s.path); err != ErrNone {
			return err
		}

		_, err := tx.ExecContext(ctx, schema+schemaTriggers+fmt.Sprintf(`PRAGMA user_version = %d`, schemaVersion))
		return err
	})
	if err != nil {
		return fmt.Errorf("set up schema of store %s: %w", s.path, err)
	}
	return nil
}
