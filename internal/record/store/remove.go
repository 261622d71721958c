package store

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"time"
)

// Remove deletes a run with all its data. New runs reuse its space in the file; Compact returns the space to
// the file system. The id of the run is never reused.
func (s *Store) Remove(ctx context.Context, runID string) error {
	err := s.inTx(ctx, func(tx *sql.Tx) error {
		err := s.lock(ctx, tx, "run "+runID) // another program may be sending the run
		if err == nil {
			_, err = tx.ExecContext(ctx, `INSERT INTO removed VALUES ($1, $2) ON CONFLICT DO NOTHING`, runID,
				time.Now().UnixNano())
		}

		for _, from := range []string{"trials WHERE run", "run_notes WHERE run", "run_ends WHERE run",
			"run_labels WHERE run", "runs WHERE id"} {
			if err == nil {
				_, err = tx.ExecContext(ctx, "DELETE FROM "+from+" = $1", runID)
			}
		}
		return err
	})
	if err != nil {
		return roomHint(fmt.Errorf("delete run %s from %s: %w", runID, s.path, err),
			"free some room on that file system: deleting takes a little")
	}
	return nil
}

// Removed lists the ids of deleted runs.
func (s *Store) Removed(ctx context.Context) ([]string, error) {
	return listOf(ctx, s, "deleted runs", scanText, `SELECT run FROM removed ORDER BY run`)
}

// Compact returns the space of deleted runs to the file system. It needs free space of twice the store's
// content: once for a copy in SQLite's temporary directory, and once for the log beside the store. On a
// server, it rewrites the tables and locks each table while it does so.
func (s *Store) Compact(ctx context.Context) (before, after int64, err error) {
	if s.server {
		if before, after, err = s.compactServer(ctx); err != nil {
			return 0, 0, fmt.Errorf("compact store %s: %w", s.path, err)
		}
		return before, after, nil
	}

	before, err = s.size()
	for _, statement := range []string{`PRAGMA wal_checkpoint(TRUNCATE)`, `VACUUM`,
		`PRAGMA wal_checkpoint(TRUNCATE)`} {
		if err == nil {
			_, err = s.db.ExecContext(ctx, statement)
		}
	}

	if err == nil {
		after, err = s.size()
	}

	if err != nil {
		return 0, 0, roomHint(fmt.Errorf("compact store %s: %w", s.path, err), "it needs as much room as "+
			"the store has content, beside it and in $SQLITE_TMPDIR, else $TMPDIR, else /var/tmp")
	}

	return before, after, nil
}

// size returns the size of the file and its log in bytes.
func (s *Store) size() (n int64, err error) {
	for _, end := range []string{"", "-wal"} {
		info, statErr := os.Stat(s.path + end)
		if statErr == nil {
			n += info.Size()
		} else if end == "" {
			err = statErr
		}
	}
	return n, err
}
