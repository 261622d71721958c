package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Sent is the result of sending a run to another store.
type Sent struct {
	Run     string `json:"run"`
	Hash    string `json:"sha256"` // hash of the run's content, see docs/reference/store.md
	Changed bool   `json:"changed"`
	// Name is set if another run in the other store already has the run's name. The run is then stored there
	// without a name.
	Name string `json:"name_taken,omitempty"`
	// Longer is set if the other store has more of the run, because the run was continued elsewhere and sent
	// from there.
	Longer bool `json:"longer_there,omitempty"`
}

// UnendedError is returned for a run that cannot be sent because it has not ended.
type UnendedError struct{ Run string }

func (e *UnendedError) Error() string { return "send run " + e.Run + ": it has not ended" }

// Hint explains how to end the run.
func (e *UnendedError) Hint() string {
	return "wait for it, or if it was killed chokepoint resume " + e.Run + " ends it"
}

// DeletedError is returned for a run that was deleted from the store to which it is sent.
type DeletedError struct{ Run, Path string }

func (e *DeletedError) Error() string {
	return "send run " + e.Run + " to " + e.Path + ": it was deleted there"
}

// Hint explains that the run cannot be sent there again.
func (e *DeletedError) Hint() string {
	return "it stays here; a store never takes a run that was deleted from it"
}

// ContentError is returned if the store to which a run is sent has a run with the same id but different
// content.
type ContentError struct{ Run, Path, Theirs, Ours string }

func (e *ContentError) Error() string {
	return fmt.Sprintf("send run %s to %s: the run of this id there has other content (SHA-256 %.12s…, here "+
		"%.12s…)", e.Run, e.Path, e.Theirs, e.Ours)
}

// Hint explains that neither run is replaced.
func (e *ContentError) Hint() string {
	return "both stay as they are; the two were continued or annotated in different places"
}

// OfRun reports whether an error of Send concerns only that run, so that other runs can still be sent.
func OfRun(err error) bool {
	refused, answered := errors.AsType[*pgconn.PgError](err)
	return check.Is[*UnendedError](err) || check.Is[*DeletedError](err) || check.Is[*ContentError](err) ||
		errors.Is(err, sql.ErrNoRows) || // the run was deleted here
		answered && slices.Contains([]string{"22", "23", "54", "P0"}, refused.Code[:2]) // data refused
}

// Send copies an ended run to another store in one transaction, so that either the whole run arrives or
// nothing. If the other store has the same content, Send changes nothing. If it has only the beginning of the
// content, Send adds the rest. Send reads the copy back. If the hash of the copy differs, it returns a
// *ContentError.
func (s *Store) Send(ctx context.Context, to *Store, runID string) (sent Sent, err error) {
	if s.server && !to.server {
		return s.sendThrough(ctx, to, runID)
	}

	return s.send(ctx, to, runID)
}

// sendThrough copies a run from a server to a file by way of a temporary file. While a program writes to the
// file, other programs have to wait. How long they wait must not depend on the server.
func (s *Store) sendThrough(ctx context.Context, to *Store, runID string) (sent Sent, err error) {
	dir, err := os.MkdirTemp("", "chokepoint-store-")
	if err != nil {
		return sent, fmt.Errorf("send run %s to %s: %w", runID, to.path, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	between, err := Open(ctx, filepath.Join(dir, "runs.db"))
	if err != nil {
		return sent, fmt.Errorf("send run %s to %s: %w", runID, to.path, err)
	}
	defer func() { err = errors.Join(err, between.Close()) }()
	between.path = to.path
	// Copy what the file already has of the run, so that the server sends only the rest.
	_, err = to.send(ctx, between, runID)
	if err == nil || check.Is[*UnendedError](err) || errors.Is(err, sql.ErrNoRows) {
		sent, err = s.send(ctx, between, runID)
	}

	if err != nil || sent.Longer {
		return sent, err
	}

	return between.send(ctx, to, runID)
}

func (s *Store) send(ctx context.Context, to *Store, runID string) (sent Sent, err error) {
	tx, err := s.db.BeginTx(ctx, s.snapshot())
	if err != nil {
		return sent, fmt.Errorf("read run %s in %s: %w", runID, s.path, err)
	}
	defer func() { err = errors.Join(err, rollback(tx)) }() // the transaction has only read
	var ours *content
	err = answered(ctx, silence, func(ctx context.Context) error {
		ours, err = s.contentOf(ctx, tx, runID)
		return err
	})
	if err != nil {
		return sent, fmt.Errorf("read run %s in %s: %w", runID, s.path, err)
	}

	if len(ours.ends) == 0 || ours.ends[len(ours.ends)-1].status == record.RunRunning {
		return sent, &UnendedError{runID}
	}

	sent = Sent{Run: runID, Hash: ours.hash}
	err = to.inTx(ctx, func(into *sql.Tx) error {
		c := courier{from: s, to: to, read: tx, write: into, run: runID}
		return c.carry(ctx, ours, &sent)
	})
	if err != nil && !check.Is[*DeletedError](err) && !check.Is[*ContentError](err) {
		err = fmt.Errorf("send run %s to %s: %w", runID, to.path, err)
	}

	return sent, err
}

// silence limits the time for each step of a copy, but not for the whole copy. A server may be slow, but it
// has to answer.
const silence = 5 * time.Minute

var errSilence = errors.New("the server does not answer")

// answered calls f with a context that ends after the given time. If f fails after that, the error is
// errSilence.
func answered(ctx context.Context, after time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, after, errSilence)
	defer cancel()
	err := f(ctx)
	if err != nil && context.Cause(ctx) == errSilence {
		return errSilence
	}
	return err
}

// snapshot returns the options of a transaction that sees a consistent snapshot of the store.
func (s *Store) snapshot() *sql.TxOptions {
	if !s.server {
		return nil // every SQLite transaction sees one
	}
	return &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
}

// courier copies the rows of a run from one transaction to another.
type courier struct {
	from, to    *Store
	read, write *sql.Tx
	run         string
}

// carry copies the missing rows and compares the hashes.
func (c courier) carry(ctx context.Context, ours *content, sent *Sent) error {
	var theirs *content // nil if the other store does not have the run
	err := answered(ctx, silence, func(ctx context.Context) (err error) {
		theirs, err = c.theirs(ctx)
		return err
	})
	if err != nil || theirs != nil && theirs.hash == ours.hash {
		return err
	}

	if theirs != nil && ours.begins(theirs) {
		sent.Longer = true
		return nil
	}

	isNew := theirs == nil
	if isNew {
		theirs = &content{}
	}

	err = answered(ctx, silence, func(ctx context.Context) error {
		if isNew {
			if err := c.copyHead(ctx, ours); err != nil {
				return err
			}
		}
		return c.copyEnds(ctx, ours, theirs)
	})
	if err == nil {
		err = c.copyMissing(ctx, ours, theirs)
	}

	if err != nil {
		return err
	}

	return answered(ctx, silence, func(ctx context.Context) error {
		now, err := c.to.contentOf(ctx, c.write, c.run)
		if err == nil && now.hash != ours.hash {
			err = &ContentError{c.run, c.to.path, cmp.Or(theirs.hash, now.hash), ours.hash}
		}

		if err == nil {
			sent.Changed = true
			err = c.copyLabels(ctx, isNew, sent)
		}

		if err == nil {
			err = c.copyResults(ctx)
		}
		return err
	})
}

// theirs returns the content of the run in the other store, or nil if the other store does not have the run.
// Other programs that send the run wait until the transaction ends.
func (c courier) theirs(ctx context.Context) (*content, error) {
	if err := c.to.lock(ctx, c.write, "run "+c.run); err != nil {
		return nil, err
	}

	var id string
	err := c.write.QueryRowContext(ctx, `SELECT run FROM removed WHERE run = $1`, c.run).Scan(&id)
	if err == nil {
		return nil, &DeletedError{c.run, c.to.path}
	}

	if !errors.Is(err, sql.ErrNoRows) {
		return nil, err
	}

	theirs, err := c.to.contentOf(ctx, c.write, c.run)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return theirs, err
}

func (c courier) copyHead(ctx context.Context, ours *content) error {
	var head []byte
	err := c.read.QueryRowContext(ctx, `SELECT head FROM runs WHERE id = $1`, c.run).Scan(&head)
	if err == nil {
		h := ours.head
		_, err = c.write.ExecContext(ctx, `INSERT INTO runs (id, stored_ns, started_ns, plan, lab, line, head)
			VALUES ($1, $2, $3, $4, $5, $6, $7)`, c.run, h.stored, h.started, h.plan, h.lab, h.line, head)
	}
	return err
}

// copyEnds adds the notes and ends that follow those in the other store.
func (c courier) copyEnds(ctx context.Context, ours, theirs *content) error {
	for _, n := range ours.notes[min(len(theirs.notes), len(ours.notes)):] {
		var body []byte
		err := c.read.QueryRowContext(ctx, `SELECT body FROM run_notes WHERE seq = $1`, n.seq).Scan(&body)
		if err == nil {
			_, err = c.write.ExecContext(ctx, `INSERT INTO run_notes (run, body) VALUES ($1, $2)`, c.run,
				body)
		}

		if err != nil {
			return err
		}
	}

	for _, e := range ours.ends[min(len(theirs.ends), len(ours.ends)):] {
		_, err := c.write.ExecContext(ctx, `INSERT INTO run_ends (run, status, reason, ended_ns)
			VALUES ($1, $2, $3, $4)`, c.run, e.status, e.reason, e.ended)
		if err != nil {
			return err
		}
	}

	return nil
}

// copyMissing adds the trials that the other store does not have.
func (c courier) copyMissing(ctx context.Context, ours, theirs *content) error {
	there := map[string]bool{}
	for _, t := range theirs.trials {
		there[t.id] = true
	}

	var some []trialRow
	size := int64(0)
	for _, t := range ours.trials {
		if there[t.id] {
			continue
		}

		if len(some) == rowsAtOnce || size+t.size > bytesAtOnce && len(some) > 0 {
			if err := c.copyTrials(ctx, some); err != nil {
				return err
			}

			some, size = nil, 0
		}

		some = append(some, t)
		size += t.size
	}

	return c.copyTrials(ctx, some)
}

// bytesAtOnce is the maximum size of the trials in one statement, unless a single trial is larger.
const bytesAtOnce = 1 << 20

// copyTrials copies trials with one statement on each side. It skips a trial whose id already exists in the
// other store. If the content of that trial differs, the comparison of the hashes detects this.
func (c courier) copyTrials(ctx context.Context, trials []trialRow) error {
	if len(trials) == 0 {
		return nil
	}

	byID := map[string]trialRow{}
	asked := []any{c.run}
	ids := ""
	for _, t := range trials {
		byID[t.id] = t
		asked = append(asked, t.id)
		ids += fmt.Sprintf(", $%d", len(asked))
	}

	args := []any{c.run}
	values := ""
	err := answered(ctx, silence, func(ctx context.Context) error {
		_, err := query(ctx, c.read, func(r *sql.Rows) (none struct{}, err error) {
			var id string
			var body, series []byte
			err = r.Scan(&id, &body, &series)
			values += ", ($1"
			t := byID[id]
			for _, v := range []any{id, t.row, t.block, t.index, t.cell, t.attempt, t.status, t.started, body,
				series} {
				args = append(args, v)
				values += fmt.Sprintf(", $%d", len(args))
			}
			values += ")"
			return none, err
		}, `SELECT id, body, series FROM trials WHERE run = $1 AND id IN (`+ids[2:]+`)`, asked...)
		return err
	})
	if err != nil {
		return err
	}

	return answered(ctx, silence, func(ctx context.Context) error {
		_, err := c.write.ExecContext(ctx, `INSERT INTO trials (run, id, row, block, row_index, cell, attempt,
			status, started_ns, body, series) VALUES `+values[2:]+` ON CONFLICT DO NOTHING`, args...)
		return err
	})
}

// copyLabels copies the headline and, for a new run, the name. On a server, it also stores the trial counts,
// so that the trials need not be counted again.
func (c courier) copyLabels(ctx context.Context, isNew bool, sent *Sent) error {
	headline, err := label(ctx, c.read, c.run, labelHeadline)
	if err == nil {
		err = setLabel(ctx, c.write, c.run, labelHeadline, headline)
	}

	counts := ""
	if err == nil && c.to.server {
		if err = c.read.QueryRowContext(ctx, `SELECT `+countsOf("$1"), c.run).Scan(&counts); err == nil {
			err = setLabel(ctx, c.write, c.run, labelCounts, counts)
		}
	}

	if err != nil || !isNew {
		return err
	}

	name, err := label(ctx, c.read, c.run, labelName)
	if err == nil && name != "" {
		err = c.to.setName(ctx, c.write, c.run, name)
	}

	if check.Is[*NameTakenError](err) {
		sent.Name = name
		return nil
	}

	return err
}

// copyResults replaces the run's cell results in the other store.
func (c courier) copyResults(ctx context.Context) error {
	any, err := c.from.hasTable(ctx, c.read, resultTable)
	var rows []resultRow
	if err == nil && any {
		rows, err = query(ctx, c.read, func(r *sql.Rows) (x resultRow, err error) {
			return x, r.Scan(&x.cell, &x.firmware, &x.body)
		}, `SELECT cell, firmware, body FROM cell_results WHERE run = $1 ORDER BY cell, firmware`, c.run)
	}

	if err != nil {
		return err
	}
	return c.to.putResults(ctx, c.write, c.run, rows)
}

// content lists the rows that the hash of a run covers, without their large columns.
type content struct {
	head   headRow
	notes  []noteRow
	ends   []endRow
	trials []trialRow
	hash   string
}

type headRow struct {
	stored, started int64
	plan, lab, line string
	sum             string // SHA-256 of the large column
}

type noteRow struct {
	seq int64
	sum string
}

type endRow struct {
	status, reason string
	ended          int64
}

type trialRow struct {
	id, row, cell, status          string
	block, index, attempt, started int64
	size                           int64     // total size of the large columns in bytes
	sums                           [2]string // SHA-256 of body and of series
}

// begins reports whether other continues c. It then has the same head and all trials of c, and its notes and
// ends begin with those of c.
func (c *content) begins(other *content) bool {
	if c.head != other.head || len(c.notes) > len(other.notes) || len(c.ends) > len(other.ends) {
		return false
	}

	theirs := map[trialRow]bool{}
	for _, t := range other.trials {
		theirs[t] = true
	}

	missing := slices.ContainsFunc(c.trials, func(t trialRow) bool { return !theirs[t] })
	sameNote := func(a, b noteRow) bool { return a.sum == b.sum }
	return !missing && slices.EqualFunc(c.notes, other.notes[:len(c.notes)], sameNote) &&
		slices.Equal(c.ends, other.ends[:len(c.ends)])
}

// contentOf returns the content of a run. The hash covers one line of JSON per row: first the head, then the
// notes and the ends in their order, then the trials sorted by id.
func (s *Store) contentOf(ctx context.Context, q asker, run string) (*content, error) {
	c := &content{}
	h := sha256.New()
	lines := json.NewEncoder(h)
	lines.SetEscapeHTML(false)
	var long, more []byte
	err := q.QueryRowContext(ctx, `SELECT stored_ns, started_ns, plan, lab, line, `+s.digested("head")+
		` FROM runs WHERE id = $1`, run).Scan(&c.head.stored, &c.head.started, &c.head.plan, &c.head.lab,
		&c.head.line, &long)
	if err != nil {
		return nil, err
	}

	c.head.sum = s.digest(long)
	err = lines.Encode([]any{"run", run, c.head.stored, c.head.started, c.head.plan, c.head.lab, c.head.line,
		c.head.sum})
	if err == nil {
		c.notes, err = query(ctx, q, func(r *sql.Rows) (n noteRow, err error) {
			err = r.Scan(&n.seq, &long)
			n.sum = s.digest(long)
			if err == nil {
				err = lines.Encode([]any{"note", n.sum})
			}
			return n, err
		}, `SELECT seq, `+s.digested("body")+` FROM run_notes WHERE run = $1 ORDER BY seq`, run)
	}

	if err == nil {
		c.ends, err = query(ctx, q, func(r *sql.Rows) (e endRow, err error) {
			if err = r.Scan(&e.status, &e.reason, &e.ended); err == nil {
				err = lines.Encode([]any{"end", e.status, e.reason, e.ended})
			}
			return e, err
		}, `SELECT status, reason, ended_ns FROM run_ends WHERE run = $1 ORDER BY seq`, run)
	}

	if err == nil {
		c.trials, err = query(ctx, q, func(r *sql.Rows) (t trialRow, err error) {
			err = r.Scan(&t.id, &t.row, &t.block, &t.index, &t.cell, &t.attempt, &t.status, &t.started,
				&t.size, &long, &more)
			t.sums = [2]string{s.digest(long), s.digest(more)}
			if err == nil {
				err = lines.Encode([]any{"trial", t.id, t.row, t.block, t.index, t.cell, t.attempt, t.status,
					t.started, t.sums[0], t.sums[1]})
			}
			return t, err
		}, `SELECT id, row, block, row_index, cell, attempt, status, started_ns,
			length(body) + length(series), `+s.digested("body")+`, `+s.digested("series")+`
			FROM trials WHERE run = $1 ORDER BY id`, run)
	}

	c.hash = fmt.Sprintf("%x", h.Sum(nil))
	return c, err
}

// digested returns the SQL expression for a column that is passed to digest. A server computes the hash
// itself.
func (s *Store) digested(column string) string {
	if s.server {
		return "sha256(" + column + ")"
	}
	return column
}

// digest returns the hexadecimal SHA-256 of a column selected with digested.
func (s *Store) digest(selected []byte) string {
	if s.server {
		return fmt.Sprintf("%x", selected)
	}
	return fmt.Sprintf("%x", sha256.Sum256(selected))
}

// Size holds the row counts of a run. The counts never decrease.
type Size struct {
	Trials, Notes, Ends int
	Ended               bool
}

// Sizes returns the sizes of all runs by id.
func (s *Store) Sizes(ctx context.Context) (map[string]Size, error) {
	sizes := map[string]Size{}
	_, err := listOf(ctx, s, "runs", func(r *sql.Rows) (none struct{}, err error) {
		var id, status, counts string
		var n Size
		if err = r.Scan(&id, &counts, &n.Notes, &n.Ends, &status); err == nil {
			_, err = fmt.Sscan(counts, &n.Trials)
		}

		n.Ended = n.Ends > 0 && status != record.RunRunning
		sizes[id] = n
		return none, err
	}, `SELECT r.id, coalesce(c.text, `+countsOf("r.id")+`),
			(SELECT count(*) FROM run_notes WHERE run = r.id),
			(SELECT count(*) FROM run_ends WHERE run = r.id), coalesce(e.status, '')
		FROM runs r
		LEFT JOIN run_ends e ON e.seq = (SELECT max(seq) FROM run_ends WHERE run = r.id)
		LEFT JOIN run_labels c ON c.seq = `+lastLabel("$1"), labelCounts)
	return sizes, err
}

// SendTo sets the store to which runs have to be sent. Every later CreateRun, AddNote and EndRun records that
// its run has yet to be sent there. The argument place is the path or URL of that store as returned by Shown,
// or "" for none.
func (s *Store) SendTo(place string) { s.team = place }

func (s *Store) markUnsent(ctx context.Context, tx *sql.Tx, runID string) error {
	if s.team == "" {
		return nil
	}
	return setLabel(ctx, tx, runID, labelUnsent, s.team)
}

// SetSent records that a run no longer has to be sent. It does nothing if the run's size differs from sent,
// because the run has then grown since it was sent.
func (s *Store) SetSent(ctx context.Context, runID string, sent Size) error {
	err := s.inTx(ctx, func(tx *sql.Tx) error {
		var now Size
		err := tx.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM trials WHERE run = $1),
			(SELECT count(*) FROM run_notes WHERE run = $1), (SELECT count(*) FROM run_ends WHERE run = $1)`,
			runID).Scan(&now.Trials, &now.Notes, &now.Ends)
		now.Ended = sent.Ended
		if err != nil || now != sent {
			return err
		}
		return setLabel(ctx, tx, runID, labelUnsent, "")
	})
	return s.storing("that run "+runID+" was sent", err)
}

// Unsent lists the runs that have not been sent to a store yet, oldest first.
func (s *Store) Unsent(ctx context.Context, place string) ([]string, error) {
	return listOf(ctx, s, "unsent runs", scanText, `SELECT r.id FROM runs r
		JOIN run_labels u ON u.seq = `+lastLabel("$1")+` WHERE u.text = $2
		ORDER BY r.stored_ns, r.id`, labelUnsent, place)
}
