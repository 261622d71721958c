package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Kinds of labels.
const (
	labelName     = "name"
	labelHeadline = "headline"
	labelCounts   = "counts" // numbers of trials, only on a server
	labelUnsent   = "unsent" // place of the store to which the run has not been sent yet
)

// latest is the name of the newest run.
const latest = "latest"

var (
	nameForm = check.Pattern(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	// idBegins matches names that can be the beginning of an id.
	idBegins   = check.Pattern(`^[0-9]{1,8}$|^[0-9]{8}-`)
	latestForm = check.Pattern(`^latest(?:~([0-9]{1,9}))?$`)
)

// NotFoundError is returned for a name that no run has.
type NotFoundError struct {
	Name string
	Near []string // similar names and ids of runs
	Runs int      // number of runs in the store
}

func (e *NotFoundError) Error() string { return fmt.Sprintf("find run %q: no such run", e.Name) }

// Hint lists similar names, or explains where to find names.
func (e *NotFoundError) Hint() string {
	const list = "chokepoint list shows the runs"
	switch {
	case latestForm().MatchString(e.Name) && e.Runs > 0:
		return fmt.Sprintf("the oldest of %s is latest~%d; %s", unit.Count(e.Runs, "run"), e.Runs-1, list)
	case len(e.Near) > 0:
		return "did you mean " + strings.Join(e.Near, " or ") + "? " + list
	}
	return list + "; RUN is an id, a name, a unique prefix of one, latest or latest~N"
}

// AmbiguousError is returned for a prefix that matches several runs.
type AmbiguousError struct {
	Prefix     string
	Candidates []string // names and ids, newest run first
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("find run %q: %d runs begin so", e.Prefix, len(e.Candidates))
}

// Hint lists the newest candidates, at most eight.
func (e *AmbiguousError) Hint() string {
	list := e.Candidates
	more := ""
	if len(list) > 8 {
		list = list[:8]
		more = " …"
	}

	return "one of: " + strings.Join(list, ", ") + more
}

// NameTakenError is returned for a name that another run has.
type NameTakenError struct{ Name, Run string }

func (e *NameTakenError) Error() string {
	return fmt.Sprintf("name a run %s: run %s has this name", e.Name, e.Run)
}

// Hint explains how to free the name.
func (e *NameTakenError) Hint() string {
	return fmt.Sprintf("choose another name, or take it from that run: chokepoint rename %s NEW", e.Run)
}

// CheckName returns an error if the name is not valid.
func CheckName(name string) error {
	why := ""
	hint := "letters, digits, dots, dashes and underscores, at most 64, such as mt6000-stock"
	switch {
	case !nameForm().MatchString(name):
		why = "it is not made of letters, digits, dots, dashes and underscores"
	case strings.EqualFold(name, latest):
		why = "this word means the newest run"
	case strings.HasSuffix(name, ".json"):
		why = "it looks like a file"
	case idBegins().MatchString(name):
		why = "it looks like the id of a run"
	default:
		return nil
	}
	return check.Hinted(hint, "name a run %q: %s", name, why)
}

// SetName renames a run; an empty name removes its name. It returns a *NameTakenError if another run has
// the name.
func (s *Store) SetName(ctx context.Context, runID, name string) error {
	if name != "" {
		if err := CheckName(name); err != nil {
			return err
		}
	}

	err := s.inTx(ctx, func(tx *sql.Tx) error { return s.setName(ctx, tx, runID, name) })
	return s.storing("name of run "+runID, err)
}

// Taken returns a *NameTakenError if a run has the name.
func (s *Store) Taken(ctx context.Context, name string) error { return taken(ctx, s.db, "", name) }

// asker is implemented by databases and transactions.
type asker interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	QueryRowContext(context.Context, string, ...any) *sql.Row
}

func (s *Store) setName(ctx context.Context, tx *sql.Tx, runID, name string) error {
	err := s.lock(ctx, tx, "names")
	if err == nil {
		err = taken(ctx, tx, runID, name)
	}

	if err == nil {
		err = setLabel(ctx, tx, runID, labelName, name)
	}
	return err
}

// setLabel adds a label, which replaces earlier ones of its kind.
func setLabel(ctx context.Context, tx *sql.Tx, runID, kind, text string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO run_labels (run, kind, text) VALUES ($1, $2, $3)`, runID, kind,
		text)
	return err
}

// taken returns a *NameTakenError if name is the name or id of a run other than runID.
func taken(ctx context.Context, q asker, runID, name string) error {
	var run string
	err := q.QueryRowContext(ctx, `SELECT r.id FROM runs r
		JOIN run_labels n ON n.seq = `+lastLabel("$1")+`
		WHERE n.text = $2 AND n.text <> '' AND r.id <> $3
		UNION ALL SELECT id FROM runs WHERE id = $2 LIMIT 1`, labelName, name, runID).Scan(&run)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return err
	}

	return &NameTakenError{name, run}
}

// SetHeadline stores the number that lists show for a run; nil means none.
func (s *Store) SetHeadline(ctx context.Context, runID string, h *record.Headline) error {
	text := ""
	if h != nil {
		b, err := json.Marshal(h)
		if err != nil {
			return fmt.Errorf("store headline of run %s: %v", runID, err)
		}

		text = string(b)
	}

	err := s.inTx(ctx, func(tx *sql.Tx) error { return setLabel(ctx, tx, runID, labelHeadline, text) })
	return s.storing("headline of run "+runID, err)
}

// label returns the last label of a kind, or "" if there is none.
func label(ctx context.Context, q asker, runID, kind string) (text string, err error) {
	err = q.QueryRowContext(ctx, `SELECT text FROM run_labels WHERE run = $1 AND kind = $2
		ORDER BY seq DESC LIMIT 1`, runID, kind).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return text, err
}

// called holds the id and the name of a run.
type called struct{ id, name string }

// called returns the ids and names of the runs with valid ids, newest first.
func (s *Store) called(ctx context.Context) ([]called, error) {
	runs, err := listOf(ctx, s, "runs", func(r *sql.Rows) (c called, err error) {
		return c, r.Scan(&c.id, &c.name)
	}, `SELECT r.id, coalesce(n.text, '') FROM runs r
		LEFT JOIN run_labels n ON n.seq = `+lastLabel("$1")+`
		ORDER BY r.stored_ns DESC, r.id DESC`, labelName)
	return slices.DeleteFunc(runs, func(c called) bool { return !ValidID(c.id) }), err
}

// Find is like Resolve, but returns the run.
func (s *Store) Find(ctx context.Context, name string) (record.Run, error) {
	id, err := s.Resolve(ctx, name)
	if err != nil {
		return record.Run{}, err
	}
	return s.run(ctx, id)
}

// Resolve returns the id of a run. The argument name is the run's id, its name, or a unique prefix of either.
// It can also be latest for the newest run, or latest~N for the N-th run before the newest. The error is a
// *NotFoundError or an *AmbiguousError.
func (s *Store) Resolve(ctx context.Context, name string) (string, error) {
	runs, err := s.called(ctx)
	if err != nil {
		return "", err
	}

	if m := latestForm().FindStringSubmatch(name); m != nil {
		before, _ := strconv.Atoi("0" + m[1]) // at most nine digits
		if before >= len(runs) {
			return "", &NotFoundError{Name: name, Runs: len(runs)}
		}
		return runs[before].id, nil
	}

	var found, words []string
	for _, r := range runs {
		byID := name != "" && strings.HasPrefix(r.id, name)
		byName := name != "" && strings.HasPrefix(r.name, name)
		word := r.id
		if byName {
			word = r.name
		}

		switch {
		case byID && r.id == name, byName && r.name == name:
			return r.id, nil
		case byID, byName:
			found, words = append(found, r.id), append(words, word)
		}
	}

	switch len(found) {
	case 0:
		return "", &NotFoundError{Name: name, Near: nearest(name, runs), Runs: len(runs)}
	case 1:
		return found[0], nil
	}

	return "", &AmbiguousError{Prefix: name, Candidates: words}
}

// maxNear is the maximum number of similar names in a hint.
const maxNear = 3

// minPart is the minimum length of a text that is searched for within names.
const minPart = 3

// nearest returns names and ids similar to text. The most similar come first, followed by those that contain
// text, newest run first.
func nearest(text string, runs []called) (near []string) {
	text = strings.ToLower(text)
	all := map[string]string{latest: latest} // lower case → original
	words := []string{latest}
	for _, r := range runs {
		for _, word := range []string{r.name, r.id} {
			if word != "" {
				all[strings.ToLower(word)] = word
				words = append(words, strings.ToLower(word))
			}
		}
	}

	for len(near) < maxNear {
		word := cmp.Or(check.Nearest(text, words), containing(text, words))
		if word == "" {
			break
		}

		near = append(near, all[word])
		words = slices.DeleteFunc(words, func(w string) bool { return w == word })
	}

	return near
}

// containing returns the first word that contains text. It returns "" if there is none or if text is too
// short.
func containing(text string, words []string) string {
	for _, w := range words {
		if len(text) >= minPart && strings.Contains(w, text) {
			return w
		}
	}
	return ""
}

// ids lists the runs' ids, newest first.
func (s *Store) ids(ctx context.Context) ([]string, error) {
	return listOf(ctx, s, "runs", scanText, `SELECT id FROM runs ORDER BY stored_ns DESC, id DESC`)
}
