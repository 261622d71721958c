package store

import (
	"context"
	"errors"
	"fmt"
)

// Verify reads everything: SQLite's own check of the file's structure and references, then every run and
// every trial with its series. It is nil only for a store that is whole.
func (s *Store) Verify(ctx context.Context) error {
	if err := s.verifyFile(ctx); err != nil {
		return fmt.Errorf("verify store %s: %w", s.path, err)
	}
	heads, err := s.Runs(ctx)
	if err != nil {
		return fmt.Errorf("verify store: %w", err)
	}
	for _, h := range heads {
		if _, err := s.Find(ctx, h.ID); err != nil {
			return fmt.Errorf("verify store: %w", err)
		}
		if _, err := s.Trials(ctx, h.ID); err != nil {
			return fmt.Errorf("verify store: %w", err)
		}
	}
	return nil
}

func (s *Store) verifyFile(ctx context.Context) (err error) {
	var verdict string
	if err := s.db.QueryRowContext(ctx, `PRAGMA integrity_check(1)`).Scan(&verdict); err != nil {
		return err
	}
	if verdict != "ok" {
		return errors.New(verdict)
	}
	rows, err := s.db.QueryContext(ctx, `PRAGMA foreign_key_check`)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	if rows.Next() {
		var table, parent string
		var row, key any
		if err := rows.Scan(&table, &row, &parent, &key); err != nil {
			return err
		}
		return fmt.Errorf("a row of %s refers to no row of %s", table, parent)
	}
	return rows.Err()
}
