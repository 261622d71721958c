package store

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// packed is a trial as it is stored.
type packed struct {
	run, id, row, cell    string
	block, index, attempt int
	status                string
	started               int64
	base                  string  // the trial that is the dictionary of body and series; "" = none
	basis                 *packed // that trial, nil if it is to be read
	body, series          []byte
}

func (p *packed) what() string { return "trial " + p.id + " of run " + p.run }

// AppendTrial stores a finished trial with everything it left behind, in one transaction: when it returns
// nil the trial is on disk and was read back, and a kill at any moment leaves all of it or nothing. The same
// row and attempt twice is a *DuplicateError. The trial is not changed.
func (s *Store) AppendTrial(ctx context.Context, t record.Trial) error {
	p, err := s.pack(t)
	if err != nil {
		return err
	}
	return s.insert(ctx, p)
}

// pack encodes a trial.
func (s *Store) pack(t record.Trial) (*packed, error) {
	p := &packed{run: t.Run, id: t.ID, row: t.Row.ID, cell: t.Row.Cell(), block: t.Row.Block,
		index: t.Row.Index, attempt: t.Attempt, status: t.Status, started: t.Started.UnixNano()}
	bare, parts := split(t)
	body, err := json.Marshal(bare)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %v", p.what(), err)
	}
	series, err := appendSeries(nil, parts)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %v", p.what(), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ok, load := t.Status == record.TrialOK, t.Row.Kind == record.RowLoad
	e := s.writing
	if e == nil || e.basis.run != t.Run || e.left == 0 || ok && load && !e.load { // has more to it
		p.body, p.series = s.enc.EncodeAll(body, nil), s.enc.EncodeAll(series, nil)
		if ok {
			s.writing, err = newEncoding(p, body, series)
			s.writing.load = load
		}
		return p, err
	}
	s.writing.left--
	p.base, p.basis = s.writing.basis.id, s.writing.basis
	p.body, p.series = s.writing.body.EncodeAll(body, nil), s.writing.series.EncodeAll(series, nil)
	return p, nil
}

// A trial is much like the one before, so that one is the dictionary of up to perDictionary others, which
// bounds what damage to it costs. Of a long one the beginning, with all names, serves.
const (
	perDictionary  = 32
	bodyDictionary = 256 << 10
	dictionary     = 64 << 10
	dictionaryID   = 1
)

// encoding encodes trials by another one.
type encoding struct {
	basis        *packed
	left         int
	load         bool // the basis carried a load
	body, series *zstd.Encoder
}

func newEncoding(p *packed, body, series []byte) (*encoding, error) {
	e := &encoding{basis: p, left: perDictionary}
	var err error
	e.body, err = newEncoder(zstd.WithEncoderDictRaw(dictionaryID, first(body, bodyDictionary)))
	if err == nil {
		e.series, err = newEncoder(zstd.WithEncoderDictRaw(dictionaryID, first(series, dictionary)))
	}
	return e, err
}

// window is how far back an encoder looks. It holds twice that, and a run has several: the usual 8 MiB made
// the program three times as large.
const window = 1 << 20

// newEncoder: with a concurrency of 1 it holds no goroutine, and the same input gives the same bytes.
func newEncoder(more ...zstd.EOption) (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, append(more, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window),
		zstd.WithLowerEncoderMem(true))...)
}

func first(b []byte, n int) []byte { return b[:min(n, len(b))] }

// decoding decodes trials by another one.
type decoding struct {
	run, trial   string
	body, series *zstd.Decoder
}

func (d *decoding) close() {
	if d != nil {
		d.body.Close()
		d.series.Close()
	}
}

// insert stores a trial, and proves that it can be read.
func (s *Store) insert(ctx context.Context, p *packed) error {
	res, err := s.db.ExecContext(ctx, `INSERT INTO trials (run, id, row, block, row_index, cell, attempt,
		status, started_ns, body, base, series) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT DO NOTHING`, p.run, p.id, p.row, p.block, p.index, p.cell, p.attempt, p.status,
		p.started, p.body, p.base, p.series)
	if err := s.added(res, err, p.what()); err != nil {
		return err
	}
	return s.confirm(ctx, p)
}

// confirm reads back what was committed, as another program would: by the file's name and without what this
// one has in memory. A file that was removed or overwritten meanwhile takes writes without a word.
func (s *Store) confirm(ctx context.Context, p *packed) (err error) {
	defer func() {
		if err != nil {
			err = check.WithHint(&LostError{p.what(), s.path, err}, "see what has happened to the file; it "+
				"was removed, replaced or damaged while the run went on")
		}
	}()
	db, err := sql.Open("sqlite", dsn(s.path, modeRead))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var body, series []byte
	err = db.QueryRowContext(ctx, `SELECT body, series FROM trials WHERE run = ? AND id = ?`, p.run,
		p.id).Scan(&body, &series)
	if err == nil && !(bytes.Equal(body, p.body) && bytes.Equal(series, p.series)) {
		err = errors.New("it differs from what was written")
	}
	return err
}

// LostError says that something was stored and could not be read back.
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

// Each is Trials one by one. An error stands for a trial that cannot be read, or for all.
func (s *Store) Each(ctx context.Context, runID string) iter.Seq2[record.Trial, error] {
	k := Keeper{Store: s, Run: runID}
	return k.Trials(ctx)
}

// Entry says which row has been tried, without reading what it left.
type Entry struct {
	Trial, Row string
	Attempt    int
	Status     string
}

// Index lists a run's stored trials, in the order of rows and attempts.
func (s *Store) Index(ctx context.Context, runID string) ([]Entry, error) {
	list, err := query(ctx, s, func(r *sql.Rows) (e Entry, err error) {
		return e, r.Scan(&e.Trial, &e.Row, &e.Attempt, &e.Status)
	}, `SELECT id, row, attempt, status FROM trials WHERE run = ? ORDER BY row_index, row, attempt`, runID)
	if err != nil {
		return nil, fmt.Errorf("list trials of run %s in %s: %w", runID, s.path, err)
	}
	return list, nil
}

// Trial reads one trial.
func (s *Store) Trial(ctx context.Context, runID, id string) (record.Trial, error) {
	p := &packed{run: runID, id: id}
	var base sql.NullString
	err := s.db.QueryRowContext(ctx, `SELECT body, base, series FROM trials WHERE run = ? AND id = ?`, runID,
		id).Scan(&p.body, &base, &p.series)
	p.base = base.String
	var t record.Trial
	if err == nil {
		t, err = s.unpack(ctx, p)
	}
	if err != nil {
		return record.Trial{}, fmt.Errorf("read %s in %s: %w", p.what(), s.path, err)
	}
	return t, nil
}

// unpack decodes a trial.
func (s *Store) unpack(ctx context.Context, p *packed) (t record.Trial, err error) {
	body, series, err := s.decode(ctx, p)
	if err == nil {
		err = json.Unmarshal(body, &t)
	}
	if err == nil && (t.Run != p.run || t.ID != p.id) {
		err = errors.New("it holds another trial")
	}
	if err != nil {
		return record.Trial{}, err
	}
	var parts []part
	if p.series == nil {
		parts, err = s.blobs(ctx, p)
	} else {
		parts, err = readSeries(series)
	}
	if err == nil {
		err = join(&t, parts)
	}
	if err != nil {
		return record.Trial{}, fmt.Errorf("series: %w", err)
	}
	return t, nil
}

// decode undoes the compression.
func (s *Store) decode(ctx context.Context, p *packed) (body, series []byte, err error) {
	d := &decoding{body: s.dec, series: s.dec}
	if p.base != "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		if d, err = s.decodingBy(ctx, p); err != nil {
			return nil, nil, fmt.Errorf("its dictionary, trial %s: %w", p.base, err)
		}
	}
	if body, err = d.body.DecodeAll(p.body, nil); err == nil {
		series, err = d.series.DecodeAll(p.series, nil)
	}
	return body, series, err
}

// decodingBy decodes what was encoded by another trial. One is kept, for all that are read after each other.
func (s *Store) decodingBy(ctx context.Context, of *packed) (*decoding, error) {
	if d := s.reading; d != nil && d.run == of.run && d.trial == of.base {
		return d, nil
	}
	p := of.basis
	if p == nil {
		p = &packed{}
		err := s.db.QueryRowContext(ctx, `SELECT body, series FROM trials WHERE run = ? AND id = ? AND base = ''`,
			of.run, of.base).Scan(&p.body, &p.series)
		if err != nil {
			return nil, err
		}
	}
	body, series, err := s.decode(ctx, p)
	if err != nil {
		return nil, err
	}
	d := &decoding{run: of.run, trial: of.base}
	d.body, err = newDecoder(zstd.WithDecoderDictRaw(dictionaryID, first(body, bodyDictionary)))
	if err == nil {
		d.series, err = newDecoder(zstd.WithDecoderDictRaw(dictionaryID, first(series, dictionary)))
	}
	if err != nil {
		return nil, err
	}
	s.reading.close()
	s.reading = d
	return d, nil
}

// blobs are the parts of a trial of schema 1.
func (s *Store) blobs(ctx context.Context, p *packed) ([]part, error) {
	return query(ctx, s, func(r *sql.Rows) (part, error) {
		var x part
		var body []byte
		if err := r.Scan(&x.path, &x.kind, &body); err != nil {
			return x, err
		}
		body, err := s.dec.DecodeAll(body, nil)
		if err == nil && x.kind == kindTable {
			x.table = new(record.Table)
			err = x.table.UnmarshalBinary(body)
		}
		if x.body = body; err != nil {
			err = fmt.Errorf("%s: %w", x.path, err)
		}
		return x, err
	}, `SELECT path, kind, body FROM blobs WHERE run = ? AND trial = ? ORDER BY path`, p.run, p.id)
}

// part is a piece of a trial that is kept outside its JSON: a table, the arrays of a latency measurement, or
// engine output as received.
type part struct {
	path, kind string
	table      *record.Table
	latency    *record.Latency
	body       []byte
}

const (
	kindTable   = "table"
	kindLatency = "latency"
	kindRaw     = "raw"
	rawPath     = "traffic/raw"
	foreignPath = "foreign/raw"
)

// split takes the tables, the single probes and the raw output out of a trial. The trial handed in keeps
// them: what is emptied is a copy.
func split(t record.Trial) (bare record.Trial, parts []part) {
	t = t.Apart()
	if t.Traffic != nil && t.Traffic.Raw != nil {
		parts = append(parts, part{path: rawPath, kind: kindRaw, body: t.Traffic.Raw})
		t.Traffic.Raw = nil
	}
	if t.Foreign != nil && t.Foreign.Raw != nil {
		parts = append(parts, part{path: foreignPath, kind: kindRaw, body: t.Foreign.Raw})
		t.Foreign.Raw = nil
	}
	for path, slot := range latencies(&t) {
		if l := *slot; l != nil {
			parts = append(parts, part{path: path, kind: kindLatency, latency: l})
			rest := *l
			rest.RTT, rest.UserRTT, rest.Late, rest.SentAt, rest.EchoNs = nil, nil, nil, nil, nil
			*slot = &rest
		}
	}
	for path, slot := range t.Tables() {
		if *slot != nil {
			parts = append(parts, part{path: path, kind: kindTable, table: *slot})
			*slot = nil
		}
	}
	slices.SortFunc(parts, func(a, b part) int { return strings.Compare(a.path, b.path) })
	return t, parts
}

// join puts the parts back. A part without a place is damage, not a detail.
func join(t *record.Trial, parts []part) error {
	slots, measured := t.Tables(), latencies(t)
	for _, p := range parts {
		slot, ok := slots[p.path]
		latency := measured[p.path]
		switch {
		case p.kind == kindRaw && p.path == rawPath && t.Traffic != nil:
			t.Traffic.Raw = p.body
		case p.kind == kindRaw && p.path == foreignPath && t.Foreign != nil:
			t.Foreign.Raw = p.body
		case p.kind == kindTable && ok:
			*slot = p.table
		case p.kind == kindLatency && latency != nil && *latency != nil:
			l := *latency
			l.RTT, l.UserRTT, l.Late = p.latency.RTT, p.latency.UserRTT, p.latency.Late
			l.SentAt, l.EchoNs = p.latency.SentAt, p.latency.EchoNs
		default:
			return fmt.Errorf("%s: %s without a place in the trial", p.path, p.kind)
		}
	}
	return nil
}

// latencies names the places where a measurement of latency can hang.
func latencies(t *record.Trial) map[string]**record.Latency {
	out := map[string]**record.Latency{"idle": &t.Idle, "loaded": &t.Loaded}
	for i, h := range t.Hops {
		at := "hops/" + strconv.Itoa(i) + "/"
		out[at+"idle"], out[at+"loaded"] = &h.Idle, &h.Loaded
	}
	return out
}
