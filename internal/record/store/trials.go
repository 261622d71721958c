package store

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// AppendTrial stores a finished trial with everything it left behind, in one transaction: when it returns
// nil the trial is on disk, and a kill at any moment leaves all of it or nothing. The same row and attempt
// twice is a *DuplicateError. The trial is not changed.
func (s *Store) AppendTrial(ctx context.Context, t record.Trial) error {
	what := "trial " + t.ID + " of run " + t.Run
	bare, parts, err := split(t)
	if err != nil {
		return fmt.Errorf("store %s: %v", what, err)
	}
	body, err := s.packJSON(bare)
	if err != nil {
		return fmt.Errorf("store %s: %v", what, err)
	}
	for i := range parts {
		parts[i].body = s.enc.EncodeAll(parts[i].body, nil)
	}
	return s.inTx(ctx, func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `INSERT INTO trials
			(run, id, row, block, row_index, cell, attempt, status, started_ns, body)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
			t.Run, t.ID, t.Row.ID, t.Row.Block, t.Row.Index, t.Row.Cell(), t.Attempt,
			t.Status, t.Started.UnixNano(), body)
		if err := s.added(res, err, what); err != nil {
			return err
		}
		for _, p := range parts {
			_, err := tx.ExecContext(ctx,
				`INSERT INTO blobs (run, trial, path, kind, body) VALUES (?, ?, ?, ?, ?)`,
				t.Run, t.ID, p.path, p.kind, p.body)
			if err != nil {
				return fmt.Errorf("store %s of %s in %s: %w", p.path, what, s.path, err)
			}
		}
		return nil
	})
}

// Trials returns all trials of a run, in the order of rows and attempts.
func (s *Store) Trials(ctx context.Context, runID string) ([]record.Trial, error) {
	entries, err := s.Index(ctx, runID)
	if err != nil {
		return nil, err
	}
	trials := make([]record.Trial, 0, len(entries))
	for _, e := range entries {
		t, err := s.trial(ctx, runID, e.Trial)
		if err != nil {
			return nil, err
		}
		trials = append(trials, t)
	}
	return trials, nil
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

func (s *Store) trial(ctx context.Context, runID, id string) (record.Trial, error) {
	place := fmt.Sprintf("trial %s of run %s in %s", id, runID, s.path)
	var body []byte
	err := s.db.QueryRowContext(ctx,
		`SELECT body FROM trials WHERE run = ? AND id = ?`, runID, id).Scan(&body)
	if err != nil {
		return record.Trial{}, fmt.Errorf("read %s: %w", place, err)
	}
	var t record.Trial
	if err := s.unpackJSON(body, &t); err != nil {
		return record.Trial{}, fmt.Errorf("read %s: %v", place, err)
	}
	parts, err := query(ctx, s, func(r *sql.Rows) (p part, err error) {
		if err := r.Scan(&p.path, &p.kind, &body); err != nil {
			return p, err
		}
		if p.body, err = s.dec.DecodeAll(body, nil); err != nil {
			return p, fmt.Errorf("%s: %v", p.path, err)
		}
		return p, nil
	}, `SELECT path, kind, body FROM blobs WHERE run = ? AND trial = ? ORDER BY path`, runID, id)
	if err != nil {
		return record.Trial{}, fmt.Errorf("read series of %s: %w", place, err)
	}
	if err := join(&t, parts); err != nil {
		return record.Trial{}, fmt.Errorf("read series of %s: %v", place, err)
	}
	return t, nil
}

// part is a piece of a trial that is kept outside its JSON: a table, or engine output as received.
type part struct {
	path, kind string
	body       []byte
}

const (
	kindTable = "table"
	kindRaw   = "raw"
	rawPath   = "traffic/raw"
)

// split takes the tables and the raw output out of a trial. The trial handed in keeps them: what is emptied
// is a copy.
func split(t record.Trial) (bare record.Trial, parts []part, err error) {
	if t.Traffic != nil {
		tr := *t.Traffic
		tr.Flows = slices.Clone(tr.Flows)
		for i := range tr.Flows {
			if tcp := tr.Flows[i].TCP; tcp != nil {
				c := *tcp
				tr.Flows[i].TCP = &c
			}
		}
		if tr.Raw != nil {
			parts = append(parts, part{rawPath, kindRaw, tr.Raw})
			tr.Raw = nil
		}
		t.Traffic = &tr
	}
	t.Nodes = maps.Clone(t.Nodes)
	for name, n := range t.Nodes {
		n.Samples = slices.Clone(n.Samples)
		t.Nodes[name] = n
	}
	slots := tables(&t)
	for _, path := range slices.Sorted(maps.Keys(slots)) {
		slot := slots[path]
		if *slot == nil {
			continue
		}
		body, err := (*slot).MarshalBinary()
		if err != nil {
			return record.Trial{}, nil, fmt.Errorf("%s: %v", path, err)
		}
		parts = append(parts, part{path, kindTable, body})
		*slot = nil
	}
	return t, parts, nil
}

// join puts the parts back. A part without a place is damage, not a detail.
func join(t *record.Trial, parts []part) error {
	slots := tables(t)
	for _, p := range parts {
		if p.path == rawPath && p.kind == kindRaw && t.Traffic != nil {
			t.Traffic.Raw = p.body
			continue
		}
		slot, ok := slots[p.path]
		if !ok || p.kind != kindTable {
			return fmt.Errorf("%s: %s without a place in the trial", p.path, p.kind)
		}
		table := new(record.Table)
		if err := table.UnmarshalBinary(p.body); err != nil {
			return fmt.Errorf("%s: %v", p.path, err)
		}
		*slot = table
	}
	return nil
}

// tables names every place of a trial where a table can hang.
func tables(t *record.Trial) map[string]**record.Table {
	slots := map[string]**record.Table{}
	if t.Traffic != nil {
		for i := range t.Traffic.Flows {
			f := &t.Traffic.Flows[i]
			at := "traffic/flows/" + strconv.Itoa(i) + "/"
			slots[at+"sent"] = &f.Sent
			slots[at+"received"] = &f.Received
			if f.TCP != nil {
				slots[at+"tcp"] = &f.TCP.Series
			}
		}
	}
	for name, n := range t.Nodes {
		for i := range n.Samples {
			// n is a copy of the map's value, but its slice is the trial's.
			slots["nodes/"+name+"/"+strconv.Itoa(i)] = &n.Samples[i].Table
		}
	}
	return slots
}
