package kills_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

// document holds what is needed of show --json.
type document struct {
	Run    struct{ ID, Status string }
	Trials []trial
}

type trial struct {
	ID, Row, Grade string
	Metrics        map[string]float64
	Failure        *struct{ Phase, Error string }
}

// read gives what the program prints as JSON.
func (s *suite) read(t *testing.T, into any, args ...string) {
	said, _ := s.say(t, args...)
	if err := json.Unmarshal([]byte(said), into); err != nil {
		t.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
}

// checkStore: the file is whole; every run, killed or not, is listed; the trials that were reported as
// finished are there, once, and whole. It returns the run's document where it has one.
func (s *suite) checkStore(t *testing.T, by told) (doc document) {
	s.verify(t)
	var ids []string
	said, _ := s.say(t, "list", "--json")
	for line := range strings.Lines(said) {
		var head struct{ ID string }
		if err := json.Unmarshal([]byte(line), &head); err != nil || head.ID == "" {
			t.Fatalf("list: line %q has no id", line)
		}

		ids = append(ids, head.ID)
	}

	for _, id := range s.known {
		if !slices.Contains(ids, id) {
			t.Errorf("run %s is lost", id)
		}
	}

	if by.begun == 0 && !slices.Contains(ids, by.run) {
		return doc // it ended before it stored its head
	}

	s.read(t, &doc, "show", "--json", by.run)
	wrong(t, "", checkTrials(doc.Trials, by))
	return doc
}

// wrong fails a test for each of some faults.
func wrong(t *testing.T, when string, faults []string) {
	t.Helper()
	for _, fault := range faults {
		t.Error(when + fault)
	}
}

// verify reads a copy of the store, as it lies there after the kill, from beginning to end.
func (s *suite) verify(t *testing.T) {
	dir := t.TempDir()
	for _, part := range []string{"runs.db", "runs.db-wal"} {
		err := rig.CopyFile(s.At("data/chokepoint/"+part), filepath.Join(dir, part), 0o600)
		// There may be no store yet, or one that was closed in peace.
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}

	st, err := store.Open(t.Context(), filepath.Join(dir, "runs.db"))
	if err == nil {
		err = errors.Join(st.Verify(t.Context()), st.Close())
	}

	if err != nil {
		t.Error(err)
	}
}

// measuredTwice lists the rows that have more than one trial with numbers.
func measuredTwice(all []trial) (faults []string) {
	good := map[string]bool{}
	for _, trial := range all {
		numbers := trial.Grade != "failed"
		if numbers && good[trial.Row] {
			faults = append(faults, "row "+trial.Row+" has more than one trial with numbers")
		}

		good[trial.Row] = good[trial.Row] || numbers
	}
	return faults
}

func checkTrials(stored []trial, t told) []string {
	faults := measuredTwice(stored)
	ids := map[string]bool{}
	rows := map[string]bool{}
	for _, trial := range stored {
		if ids[trial.ID] {
			faults = append(faults, "trial "+trial.ID+" is stored twice")
		}

		failed := trial.Grade == "failed"
		ids[trial.ID], rows[trial.Row] = true, true
		if failed && (trial.Failure == nil || trial.Failure.Error == "") {
			faults = append(faults, "trial "+trial.ID+" failed without a reason")
		}

		if !failed && len(trial.Metrics) == 0 {
			faults = append(faults, "trial "+trial.ID+" has neither numbers nor a failure")
		}
	}

	for _, row := range t.finished {
		if !rows[row] {
			faults = append(faults, "the trial of row "+row+" was reported as finished and is not stored")
		}
	}

	// At most one trial more can be stored than was reported: the one whose commit the blow fell upon.
	if len(stored) > len(t.finished)+1 {
		faults = append(faults, fmt.Sprintf("%d trials are stored, %d were reported as finished", len(stored),
			len(t.finished)))
	}

	return faults
}

// checkResumed compares a finished run with what it was before it was resumed: every row has its trial, and
// those that were there are untouched.
func checkResumed(before, after document, rows int) []string {
	faults := measuredTwice(after.Trials)
	if after.Run.Status != "done" {
		faults = append(faults, "the resumed run's status is "+after.Run.Status)
	}

	have := map[string]trial{}
	tried := map[string]bool{}
	for _, t := range after.Trials {
		have[t.ID], tried[t.Row] = t, true
	}

	for _, old := range before.Trials {
		now := have[old.ID]
		if now.Row != old.Row || !reflect.DeepEqual(now.Metrics, old.Metrics) {
			faults = append(faults, "trial "+old.ID+" is another one since the run was resumed")
		}
	}

	if len(tried) != rows {
		faults = append(faults, fmt.Sprintf("the resumed run has trials of %d rows, its plan has %d",
			len(tried), rows))
	}

	return faults
}

func TestCheckTrials(t *testing.T) {
	good := trial{ID: "a.1", Row: "a", Grade: "valid", Metrics: map[string]float64{"goodput_bps": 1}}
	failed := trial{
		ID:    "b.1",
		Row:   "b",
		Grade: "failed",
		Failure: &struct{ Phase, Error string }{"window",
			"interrupted"},
	}
	again := good
	again.ID = "a.2"
	tests := []struct {
		name     string
		trials   []trial
		finished []string
		want     string
	}{
		{"as it must be", []trial{good, failed}, []string{"a", "b"}, ""},
		{"committed but not yet reported", []trial{good, failed}, []string{"a"}, ""},
		{"reported but not stored", []trial{good}, []string{"a", "b"}, "row b was reported"},
		{"stored twice", []trial{good, good}, []string{"a"}, "a.1 is stored twice"},
		{"measured twice", []trial{good, again}, []string{"a"}, "row a has more than one"},
		{"torn", []trial{{ID: "a.1", Row: "a", Grade: "valid"}}, []string{"a"},
			"neither numbers nor a failure"},
		{"failed for no reason", []trial{{ID: "a.1", Row: "a", Grade: "failed"}}, []string{"a"},
			"without a reason"},
		{"more than could be", []trial{good, failed}, nil, "2 trials are stored, 0 were reported"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := strings.Join(checkTrials(tt.trials, told{run: "r", finished: tt.finished}), "; ")
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("faults: got %q, want %q in it", got, tt.want)
			}
		})
	}
}

func TestCheckResumed(t *testing.T) {
	of := func(status string, trials ...trial) document {
		var d document
		d.Run.Status, d.Trials = status, trials
		return d
	}
	a := trial{ID: "a.1", Row: "a", Grade: "valid", Metrics: map[string]float64{"goodput_bps": 1}}
	b := trial{ID: "b.1", Row: "b", Grade: "valid", Metrics: map[string]float64{"goodput_bps": 2}}
	changed, twice := a, a
	changed.Metrics = map[string]float64{"goodput_bps": 3}
	twice.ID = "a.2"
	tests := []struct {
		name  string
		after document
		want  string
	}{
		{"as it must be", of("done", a, b), ""},
		{"not finished", of("interrupted", a, b), "status is interrupted"},
		{"changed", of("done", changed, b), "trial a.1 is another one"},
		{"lost", of("done", b), "trial a.1 is another one"},
		{"measured again", of("done", a, twice, b), "row a has more than one"},
		{"incomplete", of("done", a), "trials of 1 rows, its plan has 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := strings.Join(checkResumed(of("interrupted", a), tt.after, 2), "; ")
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("faults: got %q, want %q in it", got, tt.want)
			}
		})
	}
}
