package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Verify reads everything: SQLite's own check of the file's structure and references, then every run and
// every trial with its series. It is nil only for a store that is whole.
func (s *Store) Verify(ctx context.Context) error {
	var verdict string
	err := s.db.QueryRowContext(ctx, `PRAGMA integrity_check(1)`).Scan(&verdict)
	if err == nil && verdict != "ok" {
		err = errors.New(verdict)
	}
	if err == nil {
		_, err = query(ctx, s, func(r *sql.Rows) (none any, err error) {
			var table, parent string
			var row, key any
			if err := r.Scan(&table, &row, &parent, &key); err != nil {
				return nil, err
			}
			return nil, fmt.Errorf("a row of %s refers to no row of %s", table, parent)
		}, `PRAGMA foreign_key_check`)
	}
	if err != nil {
		return fmt.Errorf("verify store %s: %w", s.path, err)
	}
	heads, err := s.Runs(ctx) // reads each run
	for _, h := range heads {
		if err == nil {
			_, err = s.Trials(ctx, h.ID)
		}
	}
	if err != nil {
		return fmt.Errorf("verify store: %w", err)
	}
	return nil
}
