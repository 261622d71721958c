package store

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/google/go-cmp/cmp"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// A run whose head has a flipped bit hides no other run.
func testDamagedHeadHidesNoOtherRun(t *testing.T, s *Store) {
	ctx := t.Context()
	must(t, s.CreateRun(ctx, sampleRun("good")))
	must(t, s.CreateRun(ctx, sampleRun(formatRun)))
	harm := `DROP TRIGGER runs_fixed; UPDATE runs SET head = substr(head, 1, 200) || x'ff' || substr(head, 202)`
	if s.server {
		harm = `DROP TRIGGER fixed ON runs; UPDATE runs SET head = set_byte(head, 200, 255)`
	}

	_, err := s.db.ExecContext(ctx, harm+` WHERE id = '`+formatRun+`'`)
	must(t, err)
	heads, err := s.Runs(ctx)
	if err != nil || len(heads) != 2 {
		t.Errorf("list: got %+v, %v, want both runs", heads, err)
	}

	if run, err := s.Find(ctx, "good"); err != nil || run.ID != "good" {
		t.Errorf("find the other run: %v", err)
	}

	if _, err := s.Find(ctx, formatRun); err == nil || !strings.Contains(err.Error(), formatRun) {
		t.Errorf("find the damaged run: %v, want an error that names it", err)
	}

	must(t, s.Remove(ctx, formatRun))
	must(t, s.Verify(ctx))
}

// Ids of a foreign store do not become paths.
func testForeignIDs(t *testing.T, s *Store) {
	ctx := t.Context()
	must(t, s.CreateRun(ctx, sampleRun("good")))
	for _, id := range []string{"../../x", "a/b", "", "-rf", "A", "\x1b[2J", strings.Repeat("a", 65)} {
		if err := s.CreateRun(ctx, sampleRun(id)); err == nil {
			t.Errorf("a run %q was stored", id)
		}

		_, err := s.db.ExecContext(ctx, `INSERT INTO runs SELECT $1, stored_ns+1, started_ns, plan, lab, line,
			head FROM runs WHERE id = 'good'`, id)
		must(t, err)
		if _, err := s.Find(ctx, id); err == nil {
			t.Errorf("a run %q was found", id)
		}
	}

	if run, err := s.Find(ctx, "latest"); err != nil || run.ID != "good" {
		t.Errorf("latest: %q, %v, want the only one whose id is good", run.ID, err)
	}

	heads, err := s.Runs(ctx)
	must(t, err)
	for _, h := range heads {
		if (h.Damaged == "") != (h.ID == "good") {
			t.Errorf("run %q: damaged %q", h.ID, h.Damaged)
		}
	}

	// A head that is another run's.
	_, err = s.db.ExecContext(ctx, `INSERT INTO runs SELECT 'other', stored_ns, started_ns, plan, lab, line, head
		FROM runs WHERE id = 'good'`)
	must(t, err)
	if _, err := s.Find(ctx, "other"); err == nil {
		t.Error("the head of another run was taken")
	}
}

// Whatever bit is flipped, nothing panics, and what is read is what was written.
func TestFlippedBits(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "runs.db")
	s, err := Open(ctx, path)
	must(t, err)
	for i := range 3 {
		id := fmt.Sprint("r", i)
		must(t, s.CreateRun(ctx, sampleRun(id)))
		must(t, s.AppendTrial(ctx, sampleTrial(id, 1)))
		must(t, s.AppendTrial(ctx, sampleTrial(id, 2)))
	}

	must(t, s.Close())
	whole, err := os.ReadFile(path)
	must(t, err)
	r := rand.New(rand.NewPCG(18, 18))
	wrong := 0
	for range 150 {
		data := append([]byte(nil), whole...)
		data[r.IntN(len(data))] ^= 1 << r.IntN(8)
		must(t, os.WriteFile(path, data, 0o600))
		s, err := OpenReadOnly(ctx, path)
		if err != nil {
			continue // in the part that says what the file is
		}

		for i := range 3 {
			id := fmt.Sprint("r", i)
			trials, err := s.Trials(ctx, id)
			for j := range trials {
				if err == nil && !cmp.Equal(trials[j].Traffic, sampleTrial(id, j+1).Traffic, same) {
					wrong++
				}
			}
		}

		must(t, s.Close())
	}

	if wrong > 0 {
		t.Errorf("%d trials were read wrongly", wrong)
	}
}

// A store that was removed, replaced or overwritten does not take trials without a word, and what was
// measured is still there.
func TestLostStore(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, path string){
		"removed": func(t *testing.T, path string) { must(t, os.Remove(path)) },
		"with its directory": func(t *testing.T, path string) {
			must(t, os.RemoveAll(filepath.Dir(path)))
		},
		"replaced": func(t *testing.T, path string) {
			must(t, os.Rename(path, path+".old"))
			other, err := Open(t.Context(), path)
			must(t, err)
			must(t, other.Close())
		},
		"overwritten": func(t *testing.T, path string) {
			for _, file := range []string{path, path + "-wal"} {
				info, err := os.Stat(file)
				must(t, err)
				f, err := os.OpenFile(file, os.O_WRONLY, 0)
				must(t, err)
				_, err = f.Write(make([]byte, info.Size()))
				must(t, errors.Join(err, f.Close()))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			s := newStore(t)
			must(t, s.CreateRun(ctx, sampleRun("r1")))
			k := &Keeper{Store: s, Run: "r1"}
			must(t, k.AppendTrial(ctx, sampleTrial("r1", 1)))
			must(t, k.Settle(ctx, 0))
			harm(t, s.path)
			err := k.AppendTrial(ctx, sampleTrial("r1", 2))
			if err == nil {
				t.Error("the store took a trial")
			}

			if err := k.Settle(ctx, 0); err == nil {
				t.Error("the store has every trial")
			}

			wantTrials(t, k, 2)
		})
	}
}

// Lost after the last trial it is noticed at the run's end.
func TestStoreLostAtTheEnd(t *testing.T) {
	ctx := t.Context()
	s := newStore(t)
	must(t, s.CreateRun(ctx, sampleRun("r1")))
	k := &Keeper{Store: s, Run: "r1"}
	must(t, k.AppendTrial(ctx, sampleTrial("r1", 1)))
	must(t, os.Remove(s.path))
	if err := k.Settle(ctx, 0); !errors.As(err, new(*LostError)) {
		t.Errorf("settle: got %v, want a LostError", err)
	}

	wantTrials(t, k, 1)
}

func wantTrials(t *testing.T, k *Keeper, n int) {
	t.Helper()
	var want, got []record.Trial
	for i := range n {
		want = append(want, sampleTrial(k.Run, i+1))
	}

	for trial, err := range k.Trials(t.Context()) {
		must(t, err)
		got = append(got, trial)
	}

	d := cmp.Diff(got, want, same)
	if d != "" {
		t.Errorf("trials differ (-got +want):\n%s", d)
	}
}

// A store that another program has locked costs no trial.
func TestLockedStore(t *testing.T) {
	ctx := t.Context()
	s := newStore(t)
	must(t, s.CreateRun(ctx, sampleRun("r1")))
	other, err := Open(ctx, s.path)
	must(t, err)
	defer other.Close()
	_, err = s.db.ExecContext(ctx, `PRAGMA busy_timeout = 50`)
	must(t, err)
	_, err = other.db.ExecContext(ctx, `BEGIN IMMEDIATE`)
	must(t, err)
	waits := []int{}
	k := &Keeper{Store: s, Run: "r1", Waits: func(n int, _ error) { waits = append(waits, n) }}
	for i := 1; i <= 3; i++ {
		must(t, k.AppendTrial(ctx, sampleTrial("r1", i)))
	}

	if err := k.Settle(ctx, 0); err == nil {
		t.Error("all is stored in a locked store")
	}

	hurried, cancel := context.WithCancel(ctx)
	cancel()
	began := time.Now()
	if err := k.Settle(hurried, time.Hour); err == nil || time.Since(began) > time.Minute {
		t.Errorf("settle that is cancelled: got %v after %v, want at once that it is locked", err,
			time.Since(began))
	}

	wantTrials(t, k, 3)
	released := make(chan error)
	go func() {
		time.Sleep(300 * time.Millisecond)
		_, err := other.db.Exec(`ROLLBACK`)
		released <- err
	}()
	must(t, k.Settle(ctx, 10*time.Second))
	must(t, <-released)
	d := cmp.Diff(waits, []int{1, 2, 3, 0})
	if d != "" {
		t.Errorf("trials told to wait differ (-got +want):\n%s", d)
	}

	_, err = other.db.ExecContext(ctx, `BEGIN IMMEDIATE`)
	must(t, err)
	end := func() error { return s.EndRun(ctx, "r1", record.RunDone, "", sampleStart) }
	if err := Patiently(ctx, 0, end); err == nil {
		t.Error("a locked store took the end of a run")
	}

	go func() {
		time.Sleep(300 * time.Millisecond)
		_, err := other.db.Exec(`ROLLBACK`)
		released <- err
	}()
	must(t, Patiently(ctx, 10*time.Second, end))
	must(t, <-released)
	must(t, k.Settle(hurried, time.Hour)) // which need not wait
	trials, err := s.Trials(ctx, "r1")
	must(t, err)
	if len(trials) != 3 {
		t.Errorf("%d trials are stored, want 3", len(trials))
	}
}

// On a full disk what was measured is still there, and the store stays whole.
func TestFullDisk(t *testing.T) {
	ctx := t.Context()
	s := newStore(t)
	must(t, s.CreateRun(ctx, sampleRun("r1")))
	k := &Keeper{Store: s, Run: "r1"}
	must(t, k.AppendTrial(ctx, sampleTrial("r1", 1)))
	_, err := s.db.ExecContext(ctx, `PRAGMA max_page_count = 1`) // SQLite says SQLITE_FULL, as for ENOSPC
	must(t, err)
	n := 2
	for ; n < 50; n++ {
		if err = k.AppendTrial(ctx, sampleTrial("r1", n)); err != nil {
			break
		}
	}

	if err == nil || !strings.Contains(err.Error(), "full") {
		t.Errorf("got %v, want that it is full", err)
	}

	wantTrials(t, k, n)
	must(t, s.Verify(ctx))
	for i := 0; err == nil || i == 0; i++ { // until what is deleted takes one more page than there is
		err = s.Remove(ctx, fmt.Sprintf("none-%d", i))
	}

	if check.HintOf(err) == "" {
		t.Errorf("delete: got %v without a hint", err)
	}
}

// Of many trials memory holds the last, and what it no longer holds is let go.
func TestMemoryHoldsTheLastTrials(t *testing.T) {
	ctx := t.Context()
	s := newStore(t)
	must(t, s.CreateRun(ctx, sampleRun("r1")))
	k := &Keeper{Store: s, Run: "r1"}
	large := func(index int) record.Trial {
		trial := sampleTrial("r1", index)
		raw := make([]byte, keptBytes/3)
		rand.NewChaCha8([32]byte{byte(index)}).Read(raw) // nothing makes it smaller
		trial.Traffic.Raw = fmt.Appendf(nil, "%q", base64.StdEncoding.EncodeToString(raw))
		return trial
	}
	var first weak.Pointer[packed]
	for i := 1; i < 5; i++ {
		must(t, k.AppendTrial(ctx, large(i)))
		if i == 1 {
			first = weak.Make(k.trials[0])
		}
	}

	runtime.GC()
	if first.Value() != nil || k.bytes > keptBytes || len(k.trials) == 0 {
		t.Errorf("memory holds %d trials of %d bytes, the first among them: %v; want the last, of %d at most",
			len(k.trials), k.bytes, first.Value() != nil, keptBytes)
	}

	got := k.Count(ctx)
	if got != 4 {
		t.Errorf("count: got %d, want 4", got)
	}
}

// All trials of a run are counted: those that memory no longer holds, and those of before a resume.
func testCount(t *testing.T, s *Store) {
	ctx := t.Context()
	must(t, s.CreateRun(ctx, sampleRun("r1")))
	must(t, s.AppendTrial(ctx, sampleTrial("r1", 1)))
	k := &Keeper{Store: s, Run: "r1"}
	for i := 2; i < 6; i++ {
		must(t, k.AppendTrial(ctx, sampleTrial("r1", i)))
	}

	k.trials = k.trials[2:] // as if they were large
	if got := k.Count(ctx); got != 5 {
		t.Errorf("count: got %d, want 5", got)
	}

	wantTrials(t, k, 5)
	p, err := s.pack(sampleTrial("r1", 6))
	must(t, err)
	k.trials = append(k.trials, p) // waits
	if got := k.Count(ctx); got != 6 {
		t.Errorf("count with one that waits: got %d, want 6", got)
	}

	must(t, s.Close())
	if got := k.Count(ctx); got != 3 {
		t.Errorf("count without the store: got %d, want 3", got)
	}
}

// An error of a reader keeps SQLite's code, by which one is known that must read a copy.
func TestCheckVersionKeepsTheCode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	must(t, os.WriteFile(path, bytes.Repeat([]byte("no store "), 1000), 0o600))
	db, err := sql.Open("sqlite", dsn(path, modeRead))
	must(t, err)
	defer db.Close()
	if err := checkVersion(t.Context(), db, path); codeOf(err) != sqlite3.SQLITE_NOTADB {
		t.Errorf("got %v with code %d, want %d", err, codeOf(err), sqlite3.SQLITE_NOTADB)
	}
}

// Where nothing can be written a store is read, with its log, too.
func TestUnwritable(t *testing.T) {
	for name, log := range map[string]bool{"without a log": false, "with a log": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "runs.db")
			data, err := os.ReadFile(filepath.Join("testdata", fmt.Sprintf("format-%d.db", schemaVersion)))
			must(t, err)
			must(t, os.WriteFile(path, data, 0o400))
			want := 2
			if log {
				from := newStore(t)
				must(t, from.CreateRun(t.Context(), sampleRun(formatRun)))
				must(t, from.AppendTrial(t.Context(), sampleTrial(formatRun, 1)))
				for _, end := range []string{"", "-wal"} { // as a killed writer leaves them
					data, err := os.ReadFile(from.path + end)
					must(t, err)
					must(t, os.RemoveAll(path+end))
					must(t, os.WriteFile(path+end, data, 0o400))
				}

				want = 1
			}

			out, err := readOnlyChild(t, dir, path)
			if errors.Is(err, fs.ErrPermission) {
				t.Skip("skip: no directory can be mounted read-only here")
			}

			got := fmt.Sprintf("1 runs, %d trials\n", want)
			if err != nil || out != got {
				t.Errorf("got %q, %v, want %q", out, err, got)
			}

			left, _ := os.ReadDir(dir)
			if len(left) > 2 {
				t.Errorf("left in the directory: %v", left)
			}
		})
	}
}

// Removal takes a whole run and nothing else.
func testRemove(t *testing.T, s *Store) {
	ctx := t.Context()
	for _, id := range []string{"r1", "r2"} {
		must(t, s.CreateRun(ctx, sampleRun(id)))
		must(t, s.AppendTrial(ctx, sampleTrial(id, 1)))
		must(t, s.AddNote(ctx, id, formatNote))
		must(t, s.EndRun(ctx, id, record.RunDone, "", sampleStart))
		must(t, s.SetName(ctx, id, "of-"+id))
	}

	must(t, s.Remove(ctx, "r1"))
	must(t, s.Verify(ctx))
	heads, err := s.Runs(ctx)
	if err != nil || len(heads) != 1 || heads[0].ID != "r2" || heads[0].Trials != 1 {
		t.Errorf("left: %+v, %v, want r2 alone", heads, err)
	}

	for _, table := range []string{"runs", "run_notes", "run_ends", "run_labels", "trials"} {
		if _, err := s.db.ExecContext(ctx, "DELETE FROM "+table); err == nil {
			t.Errorf("delete from %s: got no error", table)
		}
	}

	if err := s.CreateRun(ctx, sampleRun("r1")); !errors.As(err, new(*DuplicateError)) {
		t.Errorf("a deleted id again: got %v, want a DuplicateError", err)
	}

	if ids, err := s.Removed(ctx); err != nil || len(ids) != 1 || ids[0] != "r1" {
		t.Errorf("removed: %v, %v", ids, err)
	}
}
