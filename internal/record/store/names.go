package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
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
	labelCounts   = "counts" // of trials, in a store that has only ended runs
	labelUnsent   = "unsent" // the place of the store to which the run has yet to be sent
)

// latest names the newest run.
const latest = "latest"

var (
	nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	// idBegins matches names that a beginning of an id could be meant by.
	idBegins   = regexp.MustCompile(`^[0-9]{1,8}$|^[0-9]{8}-`)
	latestForm = regexp.MustCompile(`^latest(?:~([0-9]{1,9}))?$`)
)

// NotFoundError reports a name by which no run is known.
type NotFoundError struct {
	Name string
	Near []string // names and ids that it may have been meant for
	Runs int      // how many there are
}

func (e *NotFoundError) Error() string { return fmt.Sprintf("find run %q: no such run", e.Name) }

// Hint lists what may have been meant, or says where names come from.
func (e *NotFoundError) Hint() string {
	const list = "chokepoint list shows the runs"
	switch {
	case latestForm.MatchString(e.Name) && e.Runs > 0:
		return fmt.Sprintf("the oldest of %s is latest~%d; %s", unit.Count(e.Runs, "run"), e.Runs-1, list)
	case len(e.Near) > 0:
		return "did you mean " + strings.Join(e.Near, " or ") + "? " + list
	}
	return list + "; RUN is an id, a name, a unique prefix of one, latest or latest~N"
}

// AmbiguousError reports a prefix of several runs.
type AmbiguousError struct {
	Prefix     string
	Candidates []string // names and ids, of the newest run first
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("find run %q: %d runs begin so", e.Prefix, len(e.Candidates))
}

// Hint lists the candidates, the newest eight at most.
func (e *AmbiguousError) Hint() string {
	list := e.Candidates
	more := ""
	if len(list) > 8 {
		list = list[:8]
		more = " …"
	}

	return "one of: " + strings.Join(list, ", ") + more
}

// NameTakenError reports a name that another run has.
type NameTakenError struct{ Name, Run string }

func (e *NameTakenError) Error() string {
	return fmt.Sprintf("name a run %s: run %s has this name", e.Name, e.Run)
}

// Hint says how the name becomes free.
func (e *NameTakenError) Hint() string {
	return fmt.Sprintf("choose another name, or take it from that run: chokepoint rename %s NEW", e.Run)
}

// CheckName returns an error if no run may have the name.
func CheckName(name string) error {
	why := ""
	hint := "letters, digits, dots, dashes and underscores, at most 64, such as mt6000-stock"
	switch {
	case !nameForm.MatchString(name):
		why = "it is not made of letters, digits, dots, dashes and underscores"
	case strings.EqualFold(name, latest):
		why = "this word means the newest run"
	case strings.HasSuffix(name, ".json"):
		why = "it looks like a file"
	case idBegins.MatchString(name):
		why = "it looks like the id of a run"
	default:
		return nil
	}
	return check.WithHint(fmt.Errorf("name a run %q: %s", name, why), hint)
}

// SetName gives a run another name, or none. A name that another run has is a *NameTakenError.
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

// asker is a database or a transaction.
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

// setLabel adds the last label of a kind.
func setLabel(ctx context.Context, tx *sql.Tx, runID, kind, text string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO run_labels (run, kind, text) VALUES ($1, $2, $3)`, runID, kind,
		text)
	return err
}

// taken returns a *NameTakenError if a run other than runID is called name, by its name or its id.
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

// SetHeadline notes the number that lists show of a run; nil for none.
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

// label reads the last label of a kind, "" for none.
func label(ctx context.Context, q asker, runID, kind string) (text string, err error) {
	err = q.QueryRowContext(ctx, `SELECT text FROM run_labels WHERE run = $1 AND kind = $2
		ORDER BY seq DESC LIMIT 1`, runID, kind).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return text, err
}

// called is a run by what it is called.
type called struct{ id, name string }

// called lists the runs whose ids are valid, newest first.
func (s *Store) called(ctx context.Context) ([]called, error) {
	runs, err := query(ctx, s.db, func(r *sql.Rows) (c called, err error) {
		return c, r.Scan(&c.id, &c.name)
	}, `SELECT r.id, coalesce(n.text, '') FROM runs r
		LEFT JOIN run_labels n ON n.seq = `+lastLabel("$1")+`
		ORDER BY r.stored_ns DESC, r.id DESC`, labelName)
	if err != nil {
		return nil, fmt.Errorf("list runs in %s: %w", s.path, err)
	}
	return slices.DeleteFunc(runs, func(c called) bool { return !validID.MatchString(c.id) }), nil
}

// Find returns the run that Resolve finds.
func (s *Store) Find(ctx context.Context, name string) (record.Run, error) {
	id, err := s.Resolve(ctx, name)
	if err != nil {
		return record.Run{}, err
	}
	return s.run(ctx, id)
}

// Resolve returns the id of the run with this id or name, or with a unique prefix of either; of the newest
// run for latest, and of the one N before it for latest~N. The error is a *NotFoundError or an
// *AmbiguousError.
func (s *Store) Resolve(ctx context.Context, name string) (string, error) {
	runs, err := s.called(ctx)
	if err != nil {
		return "", err
	}

	if m := latestForm.FindStringSubmatch(name); m != nil {
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

// maxNear bounds the names of the hint for an unknown run.
const maxNear = 3

// minPart is the length of a text from which on it is looked for within names.
const minPart = 3

// nearest returns the names and ids that a text may have been meant for: the nearest first, then those that
// contain it, of the newest run first.
func nearest(text string, runs []called) (near []string) {
	text = strings.ToLower(text)
	all := map[string]string{latest: latest} // small letters → as it is
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

// containing returns the first word that contains a text, "" if none does or the text is too short.
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
	ids, err := query(ctx, s.db, scanText, `SELECT id FROM runs ORDER BY stored_ns DESC, id DESC`)
	if err != nil {
		return nil, fmt.Errorf("list runs in %s: %w", s.path, err)
	}
	return ids, nil
}
