package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// same compares what was stored with what was read: nil and empty are the same in JSON, and NaN is a value
// that tables really hold.
var same = cmp.Options{cmpopts.EquateEmpty(), cmpopts.EquateNaNs()}

func newStore(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "data", "chokepoint", "runs.db"))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = s.Close() })
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func testRoundTrip(t *testing.T, s *Store) {
	ctx := t.Context()
	run := sampleRun("20261121-153012-0001")
	must(t, s.CreateRun(ctx, run))
	var want []record.Trial
	for _, i := range []int{3, 1, 2, 12} {
		must(t, s.AppendTrial(ctx, sampleTrial(run.ID, i)))
	}

	for _, i := range []int{1, 2, 3, 12} {
		want = append(want, sampleTrial(run.ID, i))
	}

	gotRun, err := s.Find(ctx, run.ID)
	must(t, err)
	if d := cmp.Diff(gotRun, run, same); d != "" {
		t.Errorf("run differs (-got +want):\n%s", d)
	}

	got, err := s.Trials(ctx, run.ID)
	must(t, err)
	if d := cmp.Diff(got, want, same); d != "" {
		t.Errorf("trials differ (-got +want):\n%s", d)
	}

	index, err := s.Index(ctx, run.ID)
	must(t, err)
	first := Entry{Trial: "b1-r01.1", Row: "b1-r01", Attempt: 1, Status: "ok"}
	first.size = index[0].size // on a server
	if len(index) != 4 || index[0] != first {
		t.Errorf("index = %+v", index)
	}
}

// testForeignIsKept: what another program's file held comes back byte by byte.
func testForeignIsKept(t *testing.T, s *Store) {
	ctx := t.Context()
	run := sampleRun("20261121-153012-0001")
	trial := sampleTrial("20261121-153012-0001", 1)
	trial.Foreign = &record.Foreign{
		Tool: "flent",
		Series: &record.Table{
			Names: []string{"a"},
			T:     []int64{0, 1},
			V:     [][]float64{{.1, .2}},
		},
		Raw: []byte(`{"raw_values": {"a": [{"t": 0.30000000000000004}]}}`),
	}
	must(t, s.CreateRun(ctx, run))
	must(t, s.AppendTrial(ctx, trial))
	got, err := s.Trial(ctx, run.ID, trial.ID)
	must(t, err)
	d := cmp.Diff(got, trial, same)
	if d != "" {
		t.Errorf("trial differs (-got +want):\n%s", d)
	}

	light := got.Light()
	if light.Foreign.Raw != nil || light.Foreign.Series != nil {
		t.Error("a light trial has what grows with its length")
	}
}

func TestDirectoryAndFileArePrivate(t *testing.T) {
	s := newStore(t)
	for path, want := range map[string]os.FileMode{s.path: 0o600, filepath.Dir(s.path): 0o700,
		s.path + "-wal": 0o600} {
		info, err := os.Stat(path)
		must(t, err)
		got := info.Mode().Perm()
		if got != want {
			t.Errorf("mode of %s = %o, want %o", filepath.Base(path), got, want)
		}
	}
}

func testDuplicatesAreRefused(t *testing.T, s *Store) {
	ctx := t.Context()
	must(t, s.CreateRun(ctx, sampleRun("r1")))
	must(t, s.AppendTrial(ctx, sampleTrial("r1", 1)))
	again := sampleTrial("r1", 1)
	again.ID = "another id" // the row and attempt alone make it the same
	second := sampleTrial("r1", 1)
	second.ID, second.Attempt = "b1-r01.2", 2
	for name, err := range map[string]error{
		"run": s.CreateRun(ctx, sampleRun("r1")), "trial": s.AppendTrial(ctx, sampleTrial("r1", 1)),
		"row and attempt": s.AppendTrial(ctx, again)} {
		var dup *DuplicateError
		if !errors.As(err, &dup) {
			t.Errorf("%s twice: error %v, want a DuplicateError", name, err)
		}
	}

	must(t, s.AppendTrial(ctx, second))
	got, err := s.Trials(ctx, "r1")
	must(t, err)
	if len(got) != 2 {
		t.Errorf("%d trials, want 2", len(got))
	}
}

func testTrialOfUnknownRunIsRefused(t *testing.T, s *Store) {
	ctx := t.Context()
	if err := s.AppendTrial(ctx, sampleTrial("nobody", 1)); err == nil {
		t.Error("a trial of an unknown run was stored")
	}

	if err := s.EndRun(ctx, "nobody", record.RunDone, "", sampleStart); err == nil {
		t.Error("the end of an unknown run was stored")
	}
}

func testNothingCanBeChanged(t *testing.T, s *Store) {
	ctx := t.Context()
	must(t, s.CreateRun(ctx, sampleRun("r1")))
	must(t, s.AppendTrial(ctx, sampleTrial("r1", 1)))
	must(t, s.AddNote(ctx, "r1", Note{Caveats: []record.Caveat{{Kind: "k", Text: "t"}}}))
	must(t, s.EndRun(ctx, "r1", record.RunDone, "", sampleStart))
	must(t, s.SetName(ctx, "r1", "one"))
	for _, table := range []string{"runs", "run_notes", "run_ends", "run_labels", "trials"} {
		column := map[string]string{"runs": "head", "run_ends": "status", "run_labels": "text"}[table]
		if column == "" {
			column = "body"
		}

		changes := []string{"DELETE FROM " + table, "UPDATE " + table + " SET " + column + " = 'x'"}
		if s.server {
			changes = append(changes, "TRUNCATE "+table+" CASCADE")
		}

		for _, q := range changes {
			if _, err := s.db.ExecContext(ctx, q); err == nil || !strings.Contains(err.Error(),
				"append-only") {
				t.Errorf("%s: error %v, want append-only", q, err)
			}
		}
	}
}

func testRunStateAndNotes(t *testing.T, s *Store) {
	ctx := t.Context()
	must(t, s.CreateRun(ctx, sampleRun("r1")))
	find := func() record.Run {
		t.Helper()
		run, err := s.Find(ctx, "r1")
		must(t, err)
		return run
	}
	if got := find(); got.Status != record.RunRunning || !got.Ended.IsZero() {
		t.Errorf("new run: %s, ended %v", got.Status, got.Ended)
	}

	end := sampleStart.Add(time.Minute)
	must(t, s.EndRun(ctx, "r1", record.RunInterrupted, "Ctrl-C", end))
	if got := find(); got.Status != record.RunInterrupted || got.Reason != "Ctrl-C" || !got.Ended.Equal(end) {
		t.Errorf("interrupted run: %s %q %v", got.Status, got.Reason, got.Ended)
	}

	must(t, s.EndRun(ctx, "r1", record.RunRunning, "resumed", end.Add(time.Hour)))
	if got := find(); got.Status != record.RunRunning || !got.Ended.IsZero() {
		t.Errorf("resumed run: %s, ended %v", got.Status, got.Ended)
	}

	must(t, s.EndRun(ctx, "r1", record.RunDone, "", end.Add(2*time.Hour)))
	must(t, s.AddNote(ctx, "r1", Note{
		Caveats: []record.Caveat{{Kind: "a", Text: "1"}},
		Skipped: []record.Skipped{{Factors: record.Factors{"queue": "cake"}, Reason: "no module"}},
	}))
	must(t, s.AddNote(ctx, "r1", Note{
		Caveats:      []record.Caveat{{Kind: "b", Text: "2"}},
		Environments: []record.Environment{{Node: "router"}},
	}))
	got := find()
	if got.Status != record.RunDone || len(got.Environments) != 2 || len(got.Skipped) != 1 {
		t.Errorf("noted run: %s, %d environments, %d skipped", got.Status, len(got.Environments),
			len(got.Skipped))
	}

	d := cmp.Diff(got.Caveats, []record.Caveat{{Kind: "a", Text: "1"}, {Kind: "b", Text: "2"}})
	if d != "" {
		t.Errorf("caveats differ (-got +want):\n%s", d)
	}
}

// testInventoriesAfterTheRun belong to the nodes' environments, and those of a resumed run count.
func testInventoriesAfterTheRun(t *testing.T, s *Store) {
	ctx := t.Context()
	run := sampleRun("r1")
	run.Environments = []record.Environment{{Node: "router", Inventory: record.NoInventory("before")}}
	must(t, s.CreateRun(ctx, run))
	for _, why := range []string{"first end", "second end"} {
		must(t, s.AddNote(ctx, "r1", Note{Inventories: map[string]*record.Inventory{
			"router": record.NoInventory(why), "nobody": {}}}))
		must(t, s.AddNote(ctx, "r1", Note{}))
		got, err := s.Find(ctx, "r1")
		must(t, err)
		e := got.Environments[0]
		if len(got.Environments) != 1 || e.Inventory.Lacks("taps") != "before" ||
			e.InventoryAfter.Lacks("taps") != why {
			t.Errorf("after %s: %+v", why, got.Environments)
		}
	}
}

// testASecondImportReplacesTheFirst, and a note that only forgets takes it back; what the run itself has told
// of the node stays.
func testASecondImportReplacesTheFirst(t *testing.T, s *Store) {
	ctx := t.Context()
	run := sampleRun("r1")
	own := record.Environment{Node: "router", Facts: map[string]string{"path_ipv4:mtu": "1500"}}
	run.Environments = []record.Environment{own}
	run.Imports = nil
	run.Caveats = nil
	must(t, s.CreateRun(ctx, run))
	imported := func(file string) {
		must(t, s.AddNote(ctx, "r1", Note{
			ForgetSamples: "router",
			Imports: []record.Import{{
				Node: "router",
				File: file,
			}},
			Caveats: []record.Caveat{{Kind: "imported", Text: file}},
		}))
		must(t, s.AddNote(ctx, "r1", Note{
			ForgetFacts:  "router",
			Environments: []record.Environment{{Node: "router", Facts: map[string]string{"file": file}}},
		}))
	}
	imported("a")
	imported("b")
	got, err := s.Find(ctx, "r1")
	must(t, err)
	if len(got.Imports) != 1 || got.Imports[0].File != "b" || len(got.Caveats) != 1 ||
		len(got.Environments) != 2 || got.Environments[1].Facts["file"] != "b" {
		t.Errorf("after two imports: got %v, %v, %v, want the second", got.Imports, got.Caveats,
			got.Environments)
	}

	must(t, s.AddNote(ctx, "r1", Note{ForgetSamples: "router", ForgetFacts: "router"}))
	got, err = s.Find(ctx, "r1")
	must(t, err)
	d := cmp.Diff(got, run, same)
	if d != "" {
		t.Errorf("after it was taken back (-got +want):\n%s", d)
	}
}

func testFindAndRuns(t *testing.T, s *Store) {
	ctx := t.Context()
	if _, err := s.Find(ctx, "latest"); !errors.As(err, new(*NotFoundError)) {
		t.Errorf("latest of nothing: %v", err)
	}

	for i, id := range []string{"20261121-100000-00aa", "20261121-100000-00ab", "20261122-100000-00aa"} {
		run := sampleRun(id)
		run.Started = sampleStart.Add(time.Duration(i) * time.Hour)
		must(t, s.CreateRun(ctx, run))
	}

	failed := sampleTrial("20261121-100000-00ab", 1)
	failed.Status = record.TrialFailed
	must(t, s.AppendTrial(ctx, failed))
	must(t, s.AppendTrial(ctx, sampleTrial("20261121-100000-00ab", 2)))
	// A row that was tried three times, at last with success, is one trial that did not fail.
	for attempt, status := range []string{record.TrialFailed, record.TrialFailed, record.TrialOK} {
		again := sampleTrial("20261121-100000-00ab", 3)
		again.ID = fmt.Sprintf("%s.%d", again.Row.ID, attempt+1)
		again.Attempt = attempt + 1
		again.Status = status
		must(t, s.AppendTrial(ctx, again))
	}

	for _, c := range []struct{ name, want, candidates string }{
		{"latest", "20261122-100000-00aa", ""},
		{"20261121-100000-00ab", "20261121-100000-00ab", ""},
		{"20261122", "20261122-100000-00aa", ""},
		{"20261121", "", "20261121-100000-00ab 20261121-100000-00aa"},
		{"2026%", "", ""}, {"", "", ""}, {"2027", "", ""},
	} {
		got, err := s.Find(ctx, c.name)
		var ambiguous *AmbiguousError
		switch {
		case c.want != "" && (err != nil || got.ID != c.want):
			t.Errorf("find %q = %q, %v, want %q", c.name, got.ID, err, c.want)
		case c.candidates != "" && (!errors.As(err, &ambiguous) || strings.Join(ambiguous.Candidates,
			" ") != c.candidates):
			t.Errorf("find %q: error %v, want candidates %s", c.name, err, c.candidates)
		case c.want == "" && c.candidates == "" && !errors.As(err, new(*NotFoundError)):
			t.Errorf("find %q: error %v, want a NotFoundError", c.name, err)
		}
	}

	heads, err := s.Runs(ctx)
	must(t, err)
	var ids []string
	for _, h := range heads {
		ids = append(ids, h.ID)
	}

	d := cmp.Diff(ids, []string{"20261122-100000-00aa", "20261121-100000-00ab",
		"20261121-100000-00aa"})
	if d != "" {
		t.Errorf("order differs (-got +want):\n%s", d)
	}

	if heads[1].Trials != 3 || heads[1].Failed != 1 || heads[0].Trials != 0 {
		t.Errorf("counts = %d/%d and %d", heads[1].Trials, heads[1].Failed, heads[0].Trials)
	}
}

// testImportedRunIsTheNewest: what was measured long ago is listed with that date, and is the latest run.
func testImportedRunIsTheNewest(t *testing.T, s *Store) {
	ctx := t.Context()
	own := sampleRun("20261121-100000-00ab")
	old := sampleRun("20261122-100000-00aa")
	own.Started = sampleStart
	old.Started, old.ImportedAt = sampleStart.Add(-1000*time.Hour), sampleStart.Add(time.Hour)
	must(t, s.CreateRun(ctx, own))
	must(t, s.CreateRun(ctx, old))
	if got, err := s.Find(ctx, "latest"); err != nil || got.ID != old.ID {
		t.Errorf("latest is %q, %v, want the imported %s", got.ID, err, old.ID)
	}

	heads, err := s.Runs(ctx)
	must(t, err)
	if len(heads) != 2 || heads[0].ID != old.ID || !heads[0].Started.Equal(old.Started) {
		t.Errorf("listed are %+v, want %s first, started %v", heads, old.ID, old.Started)
	}
}

func TestReadOnly(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	if _, err := OpenReadOnly(ctx, filepath.Join(dir, "none", "runs.db")); !errors.Is(err, ErrNone) {
		t.Errorf("missing store: %v, want ErrNone", err)
	}

	if _, err := os.Stat(filepath.Join(dir, "none")); err == nil {
		t.Error("a reader created the directory")
	}

	empty := filepath.Join(dir, "empty.db")
	must(t, os.WriteFile(empty, nil, 0o600))
	if _, err := OpenReadOnly(ctx, empty); !errors.Is(err, ErrNone) {
		t.Errorf("empty file: %v, want ErrNone", err)
	}

	text := filepath.Join(dir, "text.db")
	must(t, os.WriteFile(text, []byte(strings.Repeat("not a database\n", 100)), 0o600))
	if _, err := OpenReadOnly(ctx, text); err == nil || errors.Is(err, ErrNone) {
		t.Errorf("text file: %v, want an error", err)
	}

	s := newStore(t)
	must(t, s.CreateRun(ctx, sampleRun("r1")))
	r, err := OpenReadOnly(ctx, s.path) // while the writer is open
	must(t, err)
	defer r.Close()
	must(t, s.AppendTrial(ctx, sampleTrial("r1", 1)))
	got, err := r.Trials(ctx, "r1")
	must(t, err)
	if len(got) != 1 {
		t.Errorf("reader sees %d trials, want 1", len(got))
	}

	if err := r.AppendTrial(ctx, sampleTrial("r1", 2)); err == nil {
		t.Error("a reader could write")
	}
}

func TestOddPaths(t *testing.T) {
	for _, name := range []string{"plain.db", "with space.db", "per%cent?and#hash.db", "ä:b&c=d.db"} {
		path := filepath.Join(t.TempDir(), name)
		s, err := Open(t.Context(), path)
		must(t, err)
		must(t, s.CreateRun(t.Context(), sampleRun("r1")))
		must(t, s.Close())
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			t.Errorf("%q: the store is not at its path: %v", name, err)
		}
	}
}

func TestUnusableDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	_, err := Open(t.Context(), filepath.Join(file, "runs.db"))
	if err == nil || !strings.Contains(err.Error(), "create directory of store") {
		t.Errorf("error = %v", err)
	}
}

func TestConcurrentOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	errs := make(chan error)
	for range 8 {
		go func() {
			s, err := Open(context.Background(), path)
			if err == nil {
				err = s.Close()
			}

			errs <- err
		}()
	}

	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func TestNewID(t *testing.T) {
	at := time.Date(2026, 11, 21, 16, 30, 12, 0, time.FixedZone("", 3600))
	got, want := NewID(at, 0x4f2a), "20261121-153012-4f2a"
	if got != want {
		t.Errorf("NewID = %q, want %q", got, want)
	}

	if NewID(at, 0xffff) >= NewID(at.Add(time.Second), 0) {
		t.Error("ids do not sort by time")
	}
}
