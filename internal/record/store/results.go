package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// SetResults replaces the results of a run. A nil r removes them.
func (s *Store) SetResults(ctx context.Context, runID string, r *record.Results) error {
	return s.setResults(ctx, runID, r, nil)
}

// KeepResults is like SetResults, but does nothing if the run has grown since the results were derived. The
// argument from is the size of the run at that time.
func (s *Store) KeepResults(ctx context.Context, runID string, r *record.Results, from Size) error {
	return s.setResults(ctx, runID, r, &from)
}

func (s *Store) setResults(ctx context.Context, runID string, r *record.Results, from *Size) error {
	err := s.inTx(ctx, func(tx *sql.Tx) error {
		var rows []resultRow
		err := s.lock(ctx, tx, "run "+runID)
		if err == nil && from != nil {
			var now Size
			err = tx.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM trials WHERE run = $1),
				(SELECT count(*) FROM run_notes WHERE run = $1)`, runID).Scan(&now.Trials, &now.Notes)
			if err == nil && (now.Trials != from.Trials || now.Notes != from.Notes) {
				return nil
			}
		}

		put := func(cell, firmware string, v any) {
			var body []byte
			if err == nil {
				body, err = json.Marshal(v)
				rows = append(rows, resultRow{cell, firmware, string(body)})
			}
		}
		if r != nil {
			put("", "", r.ResultFacts)
			for _, c := range r.Cells {
				put(c.Factors.ID(), c.Firmware, c)
			}
		}

		if err != nil {
			return err
		}
		return s.putResults(ctx, tx, runID, rows)
	})
	return s.storing("results of run "+runID, err)
}

// resultRow is a row of cell_results, without the column for the run.
type resultRow struct{ cell, firmware, body string }

// rowsAtOnce is the maximum number of rows per statement. Fewer statements save round trips to a server.
const rowsAtOnce = 200

// putResults replaces the results of a run.
func (s *Store) putResults(ctx context.Context, tx *sql.Tx, runID string, rows []resultRow) (err error) {
	if !s.server {
		_, err = tx.ExecContext(ctx, schemaOfResults)
	}

	if err == nil {
		_, err = tx.ExecContext(ctx, `DELETE FROM cell_results WHERE run = $1`, runID)
	}

	for some := range slices.Chunk(rows, rowsAtOnce) {
		args := []any{runID}
		values := ""
		for _, r := range some {
			n := len(args)
			values += fmt.Sprintf(", ($%d, $1, $%d, $%d)", n+1, n+2, n+3)
			args = append(args, r.cell, r.firmware, r.body)
		}

		if err == nil {
			_, err = tx.ExecContext(ctx, `INSERT INTO cell_results VALUES `+values[2:], args...)
		}
	}

	return err
}

// ResultHead holds what a history needs to know about a run and its device.
type ResultHead struct {
	ID      string
	Name    string
	Started time.Time
	Plan    string
	Status  string
	record.ResultFacts
}

// ResultHeads lists the runs with valid ids, newest first.
func (s *Store) ResultHeads(ctx context.Context) ([]ResultHead, error) {
	facts := `''`
	any, err := s.hasTable(ctx, s.db, resultTable)
	if err != nil {
		return nil, err
	}

	if any {
		facts = `coalesce((SELECT body FROM cell_results WHERE cell = '' AND run = r.id), '')`
	}

	heads, err := listOf(ctx, s, "results", func(r *sql.Rows) (h ResultHead, err error) {
		var started int64
		var body string
		err = r.Scan(&h.ID, &h.Name, &started, &h.Plan, &h.Status, &body)
		h.Started = time.Unix(0, started).UTC()
		if err == nil && body != "" {
			err = json.Unmarshal([]byte(body), &h.ResultFacts)
		}
		return h, err
	}, `SELECT r.id, coalesce((SELECT text FROM run_labels WHERE run = r.id AND kind = $1
			ORDER BY seq DESC LIMIT 1), ''), r.started_ns, r.plan,
		coalesce((SELECT status FROM run_ends WHERE run = r.id ORDER BY seq DESC LIMIT 1), $2), `+facts+`
		FROM runs r ORDER BY r.started_ns DESC, r.id DESC`, labelName, record.RunRunning)
	return slices.DeleteFunc(heads, func(h ResultHead) bool { return !ValidID(h.ID) }), err
}

// CellsOfRun returns the results of a run's cells.
func (s *Store) CellsOfRun(ctx context.Context, runID string) ([]record.CellResult, error) {
	byRun, err := s.results(ctx, `WHERE run = $1 AND cell <> ''`, runID,
		func(body []byte, c *record.CellResult) error { return json.Unmarshal(body, c) })
	return byRun[runID], err
}

// RunsOfCell returns the results of a cell by run, without their factors. A run may have several results of
// a cell, one per firmware.
func (s *Store) RunsOfCell(ctx context.Context, f record.Factors) (map[string][]record.CellResult, error) {
	skipFactors := func(body []byte, c *record.CellResult) error {
		x := struct {
			*record.CellResult
			// Factors keeps the factors from being decoded. They are already known, and decoding them is slow
			// for a thousand rows.
			Factors struct{} `json:"factors"`
		}{CellResult: c}
		return json.Unmarshal(body, &x)
	}
	return s.results(ctx, `WHERE cell = $1`, factor.Firmware.With(f, "").ID(), skipFactors)
}

func (s *Store) results(ctx context.Context, where, arg string,
	read func(body []byte, c *record.CellResult) error) (map[string][]record.CellResult, error) {
	byRun := map[string][]record.CellResult{}
	any, err := s.hasTable(ctx, s.db, resultTable)
	if err != nil || !any {
		return byRun, err
	}

	_, err = query(ctx, s.db, func(r *sql.Rows) (none struct{}, err error) {
		var run string
		var body []byte
		var c record.CellResult
		if err = r.Scan(&run, &body); err == nil {
			err = read(body, &c)
		}

		byRun[run] = append(byRun[run], c)
		return none, err
	}, `SELECT run, body FROM cell_results `+where+` ORDER BY run, cell, firmware`, arg)
	if err != nil {
		return nil, fmt.Errorf("read results in %s: %w", s.path, err)
	}

	return byRun, nil
}

// resultTable is the table of the results.
const resultTable = "cell_results"

// hasTable reports whether a table exists. A file gets some tables only with their first row. On a server,
// every table exists.
func (s *Store) hasTable(ctx context.Context, q asker, name string) (has bool, err error) {
	if s.server {
		return true, nil
	}

	err = q.QueryRowContext(ctx, `SELECT true FROM sqlite_schema WHERE name = $1`, name).Scan(&has)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return has, err
}
