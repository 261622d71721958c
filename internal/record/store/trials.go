package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// packed is a trial in its stored form.
type packed struct {
	record.Trial        // without the parts that Split removes, and those that only body contains
	body         []byte // zstd of the trial as JSON
	series       []byte // zstd
	stored       bool
}

func (p *packed) what() string { return "trial " + p.ID + " of run " + p.Run }

// AppendTrial stores a finished trial with all its data, in one transaction: when it returns nil the trial is
// on disk and was read back, and after a kill at any moment all of it or nothing is stored. A second trial
// with the same row and attempt is a *DuplicateError. The trial is not changed.
func (s *Store) AppendTrial(ctx context.Context, t record.Trial) error {
	p, err := s.pack(t)
	if err != nil {
		return err
	}
	return s.insert(ctx, p)
}

func (s *Store) pack(t record.Trial) (*packed, error) {
	p := &packed{Trial: record.Trial{
		Row:       t.Row,
		TrialHead: record.TrialHead{ID: t.ID, Started: t.Started},
		Run:       t.Run,
		Attempt:   t.Attempt,
		Status:    t.Status,
	}}
	bare, series, err := t.Split()
	if err == nil {
		p.series = s.enc.EncodeAll(series, nil)
		p.body, err = s.packJSON(bare)
	}

	if err != nil {
		return nil, fmt.Errorf("encode %s: %v", p.what(), err)
	}

	return p, nil
}

// insert stores a trial, and proves that it can be read.
func (s *Store) insert(ctx context.Context, p *packed) error {
	res, err := s.db.ExecContext(ctx, `INSERT INTO trials (run, id, row, block, row_index, cell, attempt,
		status, started_ns, body, series) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
		ON CONFLICT DO NOTHING`, p.Run, p.ID, p.Row.ID, p.Row.Block, p.Row.Index, p.Row.Cell(), p.Attempt,
		p.Status, p.Started.UnixNano(), p.body, p.series)
	if err := s.added(res, err, p.what()); err != nil {
		return err
	}
	return s.confirm(ctx, p)
}

// confirm reads back what was committed, as another program would: from a file by its name and without this
// program's caches. A file that was removed or overwritten meanwhile silently accepts writes.
func (s *Store) confirm(ctx context.Context, p *packed) (err error) {
	defer func() {
		if err != nil {
			err = check.WithHint(&LostError{p.what(), s.path, err}, "see what has happened to the file; it "+
				"was removed, replaced or damaged while the run went on")
		}
	}()
	db := s.db
	if !s.server {
		if db, err = sql.Open("sqlite", dsn(s.path, modeRead)); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, db.Close()) }()
	}
	var body, series []byte
	err = db.QueryRowContext(ctx, `SELECT body, series FROM trials WHERE run = $1 AND id = $2`, p.Run,
		p.ID).Scan(&body, &series)
	if err == nil && !(bytes.Equal(body, p.body) && bytes.Equal(series, p.series)) {
		err = errors.New("it differs from what was written")
	}

	return err
}

// LostError reports a stored item that could not be read back.
type LostError struct {
	What, Path string
	Err        error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("read %s back from %s: %v", e.What, e.Path, e.Err)
}

func (e *LostError) Unwrap() error { return e.Err }

// Trials returns all trials of a run, in the order of rows and attempts.
func (s *Store) Trials(ctx context.Context, runID string) (trials []record.Trial, err error) {
	for t, err := range s.Each(ctx, runID) {
		if err != nil {
			return nil, err
		}

		trials = append(trials, t)
	}
	return trials, nil
}

// Each is like Trials, one trial at a time. An error stands for an unreadable trial, or for all.
func (s *Store) Each(ctx context.Context, runID string) iter.Seq2[record.Trial, error] {
	k := Keeper{Store: s, Run: runID}
	return k.Trials(ctx)
}

// Entry identifies a stored trial.
type Entry struct {
	Trial, Row string
	Attempt    int
	Status     string
}

// Index lists a run's stored trials, in the order of rows and attempts.
func (s *Store) Index(ctx context.Context, runID string) ([]Entry, error) {
	list, err := query(ctx, s.db, func(r *sql.Rows) (e Entry, err error) {
		return e, r.Scan(&e.Trial, &e.Row, &e.Attempt, &e.Status)
	}, `SELECT id, row, attempt, status FROM trials WHERE run = $1 ORDER BY row_index, row, attempt`, runID)
	if err != nil {
		return nil, fmt.Errorf("list trials of run %s in %s: %w", runID, s.path, err)
	}
	return list, nil
}

// Trial reads one trial.
func (s *Store) Trial(ctx context.Context, runID, id string) (record.Trial, error) {
	p := &packed{Trial: record.Trial{TrialHead: record.TrialHead{ID: id}, Run: runID}}
	err := s.db.QueryRowContext(ctx, `SELECT body, series FROM trials WHERE run = $1 AND id = $2`, runID,
		id).Scan(&p.body, &p.series)
	var t record.Trial
	if err == nil {
		t, err = s.unpack(p)
	}

	if err != nil {
		return record.Trial{}, fmt.Errorf("read %s in %s: %w", p.what(), s.path, err)
	}

	return t, nil
}

// unpack decodes a trial.
func (s *Store) unpack(p *packed) (t record.Trial, err error) {
	if err := s.unpackJSON(p.body, &t); err != nil {
		return record.Trial{}, err
	}

	if t.Run != p.Run || t.ID != p.ID {
		return record.Trial{}, errors.New("it holds another trial")
	}

	series, err := s.dec.DecodeAll(p.series, nil)
	if err == nil {
		err = t.Join(series)
	}

	if err != nil {
		return record.Trial{}, fmt.Errorf("series: %w", err)
	}

	return t, nil
}
