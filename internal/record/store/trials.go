package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// packed is a trial in its stored form.
type packed struct {
	record.Trial        // only the fields with columns of their own
	body         []byte // the trial as JSON, zstd-compressed
	series       []byte // zstd-compressed
	stored       bool
}

func (p *packed) what() string { return "trial " + p.ID + " of run " + p.Run }

// AppendTrial stores a finished trial with all its data in one transaction. If it returns nil, the trial is
// on disk and was read back. If the program is killed, the trial is stored completely or not at all. For a
// second trial with the same row and attempt, it returns a *DuplicateError. It does not modify t.
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

// insert stores a trial and verifies that it can be decoded.
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

// confirm reads back committed data as another program would: it opens the file by name, without this
// program's caches. A file that was removed or overwritten would accept writes silently.
func (s *Store) confirm(ctx context.Context, p *packed) (err error) {
	defer func() {
		if err != nil {
			err = check.WithHint(&LostError{p.what(), s.path, err}, "see what has happened to the file; it "+
				"was removed, replaced or damaged while the run went on")
		}
	}()
	db := s.db
	if !s.server {
		if db, err = openFile(s.path, modeRead); err != nil {
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

// LostError is returned for stored data that could not be read back.
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

// Each is like Trials, but yields one trial at a time. It yields an error for each unreadable trial, or a
// single error if no trial can be read.
func (s *Store) Each(ctx context.Context, runID string) iter.Seq2[record.Trial, error] {
	k := Keeper{Store: s, Run: runID}
	return k.Trials(ctx)
}

// Entry identifies a stored trial.
type Entry struct {
	Trial, Row string
	Attempt    int
	Status     string

	size int64 // size of the trial's data on a server in bytes; 0 in a file
}

// Index lists a run's stored trials, in the order of rows and attempts.
func (s *Store) Index(ctx context.Context, runID string) ([]Entry, error) {
	size := `0`
	if s.server {
		size = `octet_length(body) + octet_length(series)`
	}

	return listOf(ctx, s, "trials of run "+runID, func(r *sql.Rows) (e Entry, err error) {
		return e, r.Scan(&e.Trial, &e.Row, &e.Attempt, &e.Status, &e.size)
	}, `SELECT id, row, attempt, status, `+size+` FROM trials WHERE run = $1
		ORDER BY row_index, row, attempt`, runID)
}

// DamagedTrialError is returned for a stored trial whose data can never be decoded.
type DamagedTrialError struct {
	Run, Trial, Path string
	Err              error
}

func (e *DamagedTrialError) Error() string {
	return fmt.Sprintf("read trial %s of run %s in %s: %v", e.Trial, e.Run, e.Path, e.Err)
}

func (e *DamagedTrialError) Unwrap() error { return e.Err }

// Trial returns one trial. It returns a *DamagedTrialError if the trial is damaged, and another error if the
// store cannot be read at the moment.
func (s *Store) Trial(ctx context.Context, runID, id string) (record.Trial, error) {
	p := &packed{Trial: record.Trial{TrialHead: record.TrialHead{ID: id}, Run: runID}}
	err := s.db.QueryRowContext(ctx, `SELECT body, series FROM trials WHERE run = $1 AND id = $2`, runID,
		id).Scan(&p.body, &p.series)
	if err != nil && codeOf(err) != sqlite3.SQLITE_CORRUPT {
		return record.Trial{}, fmt.Errorf("read %s in %s: %w", p.what(), s.path, err)
	}

	if err != nil {
		return record.Trial{}, &DamagedTrialError{runID, id, s.path, err}
	}

	return s.decoded(p)
}

// decoded decodes a trial of the store. It returns a *DamagedTrialError if that is impossible.
func (s *Store) decoded(p *packed) (record.Trial, error) {
	t, err := s.unpack(p)
	if err != nil {
		return record.Trial{}, &DamagedTrialError{p.Run, p.ID, s.path, err}
	}
	return t, nil
}

// reader reads the trials of a run one after the other. On a server, it requests several trials at a time,
// because each query costs a round trip.
type reader struct {
	store *Store
	run   string
	left  []Entry
	ahead map[string]*packed // trials that were read but not yet returned
}

// next returns the first of the remaining trials. It returns the same errors as Store.Trial.
func (r *reader) next(ctx context.Context) (record.Trial, error) {
	id := r.left[0].Trial
	if r.store.server && r.ahead[id] == nil {
		r.read(ctx)
	}

	p := r.ahead[id]
	delete(r.ahead, id)
	r.left = r.left[1:]
	if p == nil { // Trial returns the reason
		return r.store.Trial(ctx, r.run, id)
	}

	return r.store.decoded(p)
}

// read reads up to rowsAtOnce of the next trials. Their total size is at most bytesAtOnce, unless the first
// one alone is larger.
func (r *reader) read(ctx context.Context) {
	r.ahead = map[string]*packed{}
	args := []any{r.run}
	ids := ""
	size := int64(0)
	for _, e := range r.left[:min(len(r.left), rowsAtOnce)] {
		size += e.size
		if size > bytesAtOnce && len(args) > 1 {
			break
		}

		args = append(args, e.Trial)
		ids += fmt.Sprintf(", $%d", len(args))
	}

	list, err := query(ctx, r.store.db, func(row *sql.Rows) (*packed, error) {
		p := &packed{Trial: record.Trial{Run: r.run}}
		return p, row.Scan(&p.ID, &p.body, &p.series)
	}, `SELECT id, body, series FROM trials WHERE run = $1 AND id IN (`+ids[2:]+`)`, args...)
	if err != nil { // next then reads the trials one at a time
		return
	}

	for _, p := range list {
		r.ahead[p.ID] = p
	}
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
