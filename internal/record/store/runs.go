package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Head describes a run in a list.
type Head struct {
	ID      string    `json:"id"`
	Name    string    `json:"name,omitempty"`
	Started time.Time `json:"started"`
	Plan    string    `json:"plan"`
	Lab     string    `json:"lab"`
	Line
	Status   string           `json:"status"`
	Reason   string           `json:"reason,omitempty"`
	Trials   int              `json:"trials"` // rows with a trial; repetitions are not counted
	Failed   int              `json:"failed"` // rows whose last trial failed
	Headline *record.Headline `json:"headline,omitempty"`
	Damaged  string           `json:"damaged,omitempty"` // why the run cannot be read
}

// Line is the part of a list entry that is known when a run starts.
type Line struct {
	Device string                `json:"device,omitempty"`
	Notes  []string              `json:"notes,omitempty"`
	Varied []record.FactorLevels `json:"varied,omitempty"` // factors with several levels
}

// Note is an addition to a run after its head was stored. When a run is read, its notes are added to the head
// in the order in which they were written.
type Note struct {
	Caveats      []record.Caveat      `json:"caveats,omitempty"`
	Skipped      []record.Skipped     `json:"skipped,omitempty"`
	Environments []record.Environment `json:"environments,omitempty"`
	Ceilings     []record.Ceiling     `json:"ceilings,omitempty"`
	Topologies   []record.Topology    `json:"topologies,omitempty"`
	Imports      []record.Import      `json:"imports,omitempty"`
	Experiments  []string             `json:"experiments,omitempty"`
	// Inventories holds what was read after the last trial, by node.
	Inventories map[string]*record.Inventory `json:"inventories,omitempty"`
	// ForgetSamples and ForgetFacts name nodes for which imports in earlier notes no longer apply.
	ForgetSamples string `json:"forget_samples,omitempty"`
	ForgetFacts   string `json:"forget_facts,omitempty"`
}

// addTo adds the note to a head. own is the number of environments that are stored with the head itself.
func (n Note) addTo(run *record.Run, own int) {
	if n.ForgetSamples != "" {
		of := func(im record.Import) bool { return im.Node == n.ForgetSamples }
		run.Imports = slices.DeleteFunc(run.Imports, of)
		run.Caveats = slices.DeleteFunc(run.Caveats,
			func(c record.Caveat) bool { return c.Kind == "imported" })
	}

	if n.ForgetFacts != "" {
		of := func(e record.Environment) bool { return e.Node == n.ForgetFacts }
		left := slices.DeleteFunc(run.Environments[own:], of)
		run.Environments = append(run.Environments[:own], left...)
	}

	run.Caveats = append(run.Caveats, n.Caveats...)
	run.Skipped = append(run.Skipped, n.Skipped...)
	run.Environments = append(run.Environments, n.Environments...)
	run.Ceilings = append(run.Ceilings, n.Ceilings...)
	run.Topologies = append(run.Topologies, n.Topologies...)
	run.Imports = append(run.Imports, n.Imports...)
	run.Experiments = append(run.Experiments, n.Experiments...)
	for i := range run.Environments[:own] {
		e := &run.Environments[i]
		e.InventoryAfter = cmp.Or(n.Inventories[e.Node], e.InventoryAfter)
	}
}

// DuplicateError is returned for a run or trial that is already stored.
type DuplicateError struct{ What string }

func (e *DuplicateError) Error() string { return "store " + e.What + ": it is already stored" }

// NewID returns the id of a run. The id consists of the UTC time, for sorting, and four random hex digits,
// for runs that start in the same second.
func NewID(now time.Time, random uint16) string {
	return fmt.Sprintf("%s-%04x", now.UTC().Format("20060102-150405"), random)
}

// CreateRun stores the head of a run and its name, if any. It returns a *DuplicateError if the id exists,
// and a *NameTakenError if another run has the name.
func (s *Store) CreateRun(ctx context.Context, run record.Run) error {
	if !validID().MatchString(run.ID) {
		return fmt.Errorf("store run %q: %w", run.ID, errID)
	}

	line, err := json.Marshal(Line{Device: run.Device, Notes: run.Notes, Varied: run.Design.Varied()})
	if err != nil {
		return fmt.Errorf("store run %s: %v", run.ID, err)
	}

	body, err := s.packJSON(run)
	if err != nil {
		return fmt.Errorf("store run %s: %v", run.ID, err)
	}

	stored := cmp.Or(run.ImportedAt, run.Started)
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `INSERT INTO runs (id, stored_ns, started_ns, plan, lab, line, head)
			SELECT $1, $2, $3, $4, $5, $6, $7 WHERE $1 NOT IN (SELECT run FROM removed)
			ON CONFLICT DO NOTHING`, run.ID, stored.UnixNano(), run.Started.UnixNano(), storable(run.Design.Name),
			storable(run.Lab), string(line), body)
		if err == nil {
			err = s.added(res, nil, "run "+run.ID)
		}

		if err != nil {
			return err
		}

		if err := s.markUnsent(ctx, tx, run.ID); err != nil || run.Name == "" {
			return err
		}

		return s.setName(ctx, tx, run.ID, run.Name)
	})
	return s.storing("run "+run.ID, err)
}

// storing adds to an error what was to be stored, unless the error already contains it.
func (s *Store) storing(what string, err error) error {
	if err == nil || check.Is[*DuplicateError](err) || check.Is[*NameTakenError](err) ||
		check.Is[*BedTakenError](err) {
		return err
	}
	return fmt.Errorf("store %s in %s: %w", what, s.path, err)
}

// validID matches the ids of runs. They are used in paths.
var validID = check.Pattern(`^[a-z0-9][a-z0-9-]{0,63}$`)

// ValidID reports whether id is a valid run id.
func ValidID(id string) bool { return validID().MatchString(id) }

var errID = errors.New("an id is up to 64 small letters, digits and hyphens")

// added converts the result of an INSERT into an error.
func (s *Store) added(res sql.Result, err error, what string) error {
	if err != nil {
		return s.storing(what, err)
	}

	if n, err := res.RowsAffected(); err == nil && n == 0 {
		return &DuplicateError{What: what}
	}
	return nil
}

// AddNote appends an addition to a run's head.
func (s *Store) AddNote(ctx context.Context, runID string, note Note) error {
	body, err := s.packJSON(note)
	if err != nil {
		return fmt.Errorf("store note on run %s: %v", runID, err)
	}

	err = s.inTx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO run_notes (run, body) VALUES ($1, $2)`, runID, body)
		if err == nil {
			err = s.markUnsent(ctx, tx, runID)
		}
		return err
	})
	return s.storing("note on run "+runID, err)
}

// EndRun stores how the run ended. The last call applies: a resumed run may have the status record.RunRunning
// first and another one later.
func (s *Store) EndRun(ctx context.Context, runID, status, reason string, when time.Time) error {
	err := s.inTx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx,
			`INSERT INTO run_ends (run, status, reason, ended_ns) VALUES ($1, $2, $3, $4)`,
			runID, status, storable(reason), when.UnixNano())
		if err == nil {
			err = s.markUnsent(ctx, tx, runID)
		}
		return err
	})
	return s.storing("end of run "+runID, err)
}

// storable replaces the bytes that a text on a server must not contain.
func storable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// Runs lists all runs, newest first.
func (s *Store) Runs(ctx context.Context) ([]Head, error) {
	return listOf(ctx, s, "runs", func(r *sql.Rows) (h Head, err error) {
		var started int64
		var line, headline, counts string
		err = r.Scan(&h.ID, &h.Name, &started, &h.Plan, &h.Lab, &line, &h.Status, &h.Reason, &counts,
			&headline)
		h.Started = time.Unix(0, started).UTC()
		h.count(counts)
		if !validID().MatchString(h.ID) {
			h.Damaged = errID.Error()
		}

		for text, into := range map[string]any{line: &h.Line, headline: &h.Headline} {
			if jsonErr := json.Unmarshal([]byte(text), into); jsonErr != nil && text != "" {
				h.Damaged = jsonErr.Error()
			}
		}

		return h, err
	}, `SELECT r.id, coalesce(n.text, ''), r.started_ns, r.plan, r.lab, r.line, coalesce(e.status, $1),
			coalesce(e.reason, ''), coalesce(c.text, `+countsOf("r.id")+`), coalesce(b.text, '')
		FROM runs r
		LEFT JOIN run_ends e ON e.seq = (SELECT max(seq) FROM run_ends WHERE run = r.id)
		LEFT JOIN run_labels n ON n.seq = `+lastLabel("$2")+`
		LEFT JOIN run_labels b ON b.seq = `+lastLabel("$3")+`
		LEFT JOIN run_labels c ON c.seq = `+lastLabel("$4")+`
		ORDER BY r.stored_ns DESC, r.id DESC`, record.RunRunning, labelName, labelHeadline, labelCounts)
}

// lastLabel returns SQL that selects the number of the last label of a kind for run r.
func lastLabel(kind string) string {
	return `(SELECT max(seq) FROM run_labels WHERE run = r.id AND kind = ` + kind + `)`
}

// countsOf returns SQL that selects the numbers of a run's trials, repetitions and failed trials, in the
// form that count parses.
func countsOf(run string) string {
	return `(SELECT count(*) || ' ' || count(*) FILTER (WHERE attempt > 1) || ' ' ||
		count(*) FILTER (WHERE status <> '` + record.TrialOK + `') FROM trials WHERE run = ` + run + `)`
}

// count parses the result of countsOf and sets the numbers of trials. Except in a search, a row of the plan
// is measured again only if its trial failed.
func (h *Head) count(text string) {
	var trials, repeated, failed int
	if _, err := fmt.Sscan(text, &trials, &repeated, &failed); err != nil {
		h.Damaged = err.Error()
	}

	h.Trials = trials - repeated
	h.Failed = max(0, failed-repeated)
}

// run reads a head and applies its notes and its end.
func (s *Store) run(ctx context.Context, id string) (record.Run, error) {
	var body []byte
	if err := s.db.QueryRowContext(ctx, `SELECT head FROM runs WHERE id = $1`, id).Scan(&body); err != nil {
		return record.Run{}, fmt.Errorf("read run %s in %s: %w", id, s.path, err)
	}

	var run record.Run
	err := s.unpackJSON(body, &run)
	if err == nil && run.ID != id {
		err = errors.New("it holds another run")
	}

	if err != nil {
		err = fmt.Errorf("read run %s in %s: it is damaged: %w", id, s.path, err)
		return record.Run{}, check.WithHint(err,
			"the other runs can be read; chokepoint delete "+id+" removes this one")
	}

	own := len(run.Environments)
	_, err = query(ctx, s.db, func(r *sql.Rows) (none struct{}, err error) {
		var n Note // imports are large, so decode one at a time
		if err := r.Scan(&body); err != nil {
			return none, err
		}

		if err := s.unpackJSON(body, &n); err != nil {
			return none, err
		}

		n.addTo(&run, own)
		return none, nil
	}, `SELECT body FROM run_notes WHERE run = $1 ORDER BY seq`, id)
	if err != nil {
		return record.Run{}, fmt.Errorf("read notes of run %s in %s: %w", id, s.path, err)
	}

	run.Name, err = label(ctx, s.db, id, labelName)
	if err != nil {
		return record.Run{}, fmt.Errorf("read name of run %s in %s: %w", id, s.path, err)
	}

	// The last end applies. A run without an end is in progress or was killed. The caller finds out by
	// checking whether the run's process is alive.
	var ended int64
	run.Status = record.RunRunning
	run.Reason = ""
	run.Ended = time.Time{}
	err = s.db.QueryRowContext(ctx,
		`SELECT status, reason, ended_ns FROM run_ends WHERE run = $1 ORDER BY seq DESC LIMIT 1`,
		run.ID).Scan(&run.Status, &run.Reason, &ended)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return record.Run{}, fmt.Errorf("read end of run %s in %s: %w", run.ID, s.path, err)
	}

	if run.Status != record.RunRunning {
		run.Ended = time.Unix(0, ended).UTC()
	}

	return run, nil
}

// query calls scan for each row and collects the results. If an error occurs, query also returns the results
// before it.
func query[T any](ctx context.Context, q asker, scan func(*sql.Rows) (T, error), text string,
	args ...any) (list []T, err error) {
	rows, err := q.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		x, err := scan(rows)
		if err != nil {
			return list, err
		}

		list = append(list, x)
	}

	return list, rows.Err()
}

// listOf is like query, for a list of the store. In errors, what describes the list.
func listOf[T any](ctx context.Context, s *Store, what string, scan func(*sql.Rows) (T, error), text string,
	args ...any) ([]T, error) {
	list, err := query(ctx, s.db, scan, text, args...)
	if err != nil {
		return nil, fmt.Errorf("list %s in %s: %w", what, s.path, err)
	}
	return list, nil
}

func scanText(r *sql.Rows) (text string, err error) { return text, r.Scan(&text) }

func (s *Store) packJSON(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return s.enc.EncodeAll(b, nil), nil
}

func (s *Store) unpackJSON(body []byte, v any) error {
	b, err := s.dec.DecodeAll(body, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}
