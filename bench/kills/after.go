package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

// document is what is needed of show --json.
type document struct {
	Run    struct{ ID, Status string }
	Trials []trial
}

type trial struct {
	ID, Row, Grade string
	Metrics        map[string]float64
	Failure        *struct{ Phase, Error string }
}

// files lists what lies in the program's folders where nothing of a run may stay: the journal, the sockets,
// temporary files, and unfinished results.
func (o options) files() (inventory, error) {
	var i inventory
	for _, d := range []string{"home", "state", "run", "tmp", "config", "data"} {
		err := filepath.WalkDir(o.At(d), func(path string, e fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // removed meanwhile
			}
			path = strings.TrimPrefix(path, o.Dir+"/")
			// A folder stays of each kind; one of a lab must not.
			if err != nil || e.IsDir() && !strings.HasPrefix(path, "run/chokepoint/labs/") {
				return err
			}
			if d != "data" || strings.HasPrefix(filepath.Base(path), ".") {
				i = append(i, path)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("list files: %v", err)
		}
	}
	return i.sorted(), nil
}

func (o options) storedRuns() ([]string, error) {
	said, err := o.say("list", "--json")
	if err != nil {
		return nil, err
	}
	var ids []string
	for line := range strings.Lines(said) {
		var head struct{ ID string }
		if err := json.Unmarshal([]byte(line), &head); err != nil || head.ID == "" {
			return nil, fmt.Errorf("list: line %q has no id", line)
		}
		ids = append(ids, head.ID)
	}
	return ids, nil
}

// checkStore: the file is whole; every run, killed or not, is listed; the trials that were reported as
// finished are there, once, and whole. It returns the run's document where it has one.
func (o options) checkStore(known []string, t told) (document, []string) {
	var faults []string
	if err := o.verify(); err != nil {
		faults = append(faults, err.Error())
	}
	ids, err := o.storedRuns()
	if err != nil {
		return document{}, append(faults, err.Error())
	}
	for _, id := range known {
		if !slices.Contains(ids, id) {
			faults = append(faults, "run "+id+" is lost")
		}
	}
	if t.begun == 0 && !slices.Contains(ids, t.run) {
		return document{}, faults // it ended before it stored its head
	}
	doc, err := o.show(t.run)
	if err != nil {
		return doc, append(faults, err.Error())
	}
	return doc, append(faults, checkTrials(doc.Trials, t)...)
}

func (o options) show(run string) (document, error) {
	var doc document
	said, err := o.say("show", "--json", run)
	if err != nil {
		return doc, err
	}
	if err := json.Unmarshal([]byte(said), &doc); err != nil {
		return doc, fmt.Errorf("show --json %s: %v", run, err)
	}
	return doc, nil
}

// verify reads a copy of the store, as it lies there after the kill, from beginning to end.
func (o options) verify() error {
	dir, err := os.MkdirTemp(o.Dir, "copy-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	from := o.At("data/chokepoint/runs.db")
	for _, part := range []string{"", "-wal"} {
		err := rig.CopyFile(from+part, filepath.Join(dir, "runs.db")+part, 0o600)
		if errors.Is(err, fs.ErrNotExist) {
			continue // no store yet, or one that was closed in peace
		}
		if err != nil {
			return err
		}
	}
	ctx := context.Background()
	s, err := store.Open(ctx, filepath.Join(dir, "runs.db"))
	if err != nil {
		return err
	}
	return errors.Join(s.Verify(ctx), s.Close())
}

func checkTrials(stored []trial, t told) []string {
	var faults []string
	ids, rows, good := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, trial := range stored {
		if ids[trial.ID] {
			faults = append(faults, "trial "+trial.ID+" is stored twice")
		}
		failed := trial.Grade == "failed"
		if !failed && good[trial.Row] {
			faults = append(faults, "row "+trial.Row+" has more than one trial with numbers")
		}
		ids[trial.ID], rows[trial.Row], good[trial.Row] = true, true, good[trial.Row] || !failed
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
	var faults []string
	if after.Run.Status != "done" {
		faults = append(faults, "the resumed run's status is "+after.Run.Status)
	}
	have := map[string]trial{}
	tried, good := map[string]bool{}, map[string]int{}
	for _, t := range after.Trials {
		have[t.ID] = t
		tried[t.Row] = true
		if t.Grade != "failed" {
			good[t.Row]++
		}
	}
	for _, old := range before.Trials {
		if now := have[old.ID]; now.Row != old.Row || !reflect.DeepEqual(now.Metrics, old.Metrics) {
			faults = append(faults, "trial "+old.ID+" is another one since the run was resumed")
		}
	}
	for row, n := range good {
		if n > 1 {
			faults = append(faults, fmt.Sprintf("row %s has %d trials with numbers since the run was resumed",
				row, n))
		}
	}
	if len(tried) != rows {
		faults = append(faults, fmt.Sprintf("the resumed run has trials of %d rows, its plan has %d",
			len(tried), rows))
	}
	return faults
}
