package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
)

// listed returns the ids of the runs that a reader of a shared store sees.
func listed(t *testing.T, shared *Shared) (ids []string) {
	t.Helper()
	s, err := shared.Open(t.Context())
	must(t, err)
	heads, err := s.Runs(t.Context())
	must(t, err)
	must(t, s.Close())
	for _, h := range heads {
		ids = append(ids, h.ID)
	}
	return ids
}

// TestShared: fifty readers at once use one store and see what is written meanwhile, even those whose context
// ends; the last one closes it.
func TestShared(t *testing.T) {
	for name, place := range map[string]func() string{
		"file":   func() string { return filepath.Join(t.TempDir(), "runs.db") },
		"server": func() string { return apart.Postgres(t) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			place := place()
			w, err := Open(ctx, place)
			must(t, err)
			defer w.Close()
			must(t, w.CreateRun(ctx, sampleRun("r0")))
			shared := NewShared(place)
			first, err := shared.Open(ctx)
			must(t, err)
			var readers sync.WaitGroup
			for i := range 50 {
				readers.Go(func() {
					own, leave := context.WithCancel(ctx)
					defer leave()
					s, err := shared.Open(own)
					if err == nil {
						_, err = s.Find(own, "r0")
					}

					if err == nil && i%5 == 0 {
						leave()
						_, _ = s.Runs(own)
					} else if err == nil {
						_, err = s.Runs(own)
					}

					if err == nil {
						err = s.Close()
					}

					if err != nil {
						t.Error(err)
					}
				})
			}

			for i := range 5 {
				must(t, w.CreateRun(ctx, sampleRun(fmt.Sprint("new", i))))
			}

			readers.Wait()
			if ids := listed(t, shared); len(ids) != 6 || shared.open.db != first.db {
				t.Errorf("got %v, want 6 runs from the store that was opened first", ids)
			}

			must(t, shared.Close())
			must(t, shared.Close())
			if _, err := first.Runs(ctx); err != nil {
				t.Errorf("closed under a reader: %v", err)
			}

			must(t, first.Close())
			if _, err := first.Runs(ctx); err == nil {
				t.Error("the last reader did not close the store")
			}
		})
	}
}

// TestSharedFileReplaced: another file under the same name is opened, while readers of the old one go on. A
// store that does not exist yet is looked for again.
func TestSharedFileReplaced(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "runs.db")
	shared := NewShared(path)
	if _, err := shared.Open(ctx); err != ErrNone {
		t.Errorf("got %v, want ErrNone", err)
	}

	write := func(id string) {
		s, err := Open(ctx, path)
		must(t, err)
		must(t, s.CreateRun(ctx, sampleRun(id)))
		must(t, s.Close())
	}
	write("old")
	reader, err := shared.Open(ctx)
	must(t, err)
	must(t, os.Rename(path, path+".away"))
	write("new")
	if ids := listed(t, shared); len(ids) != 1 || ids[0] != "new" {
		t.Errorf("got %v, want the run of the new file", ids)
	}

	if heads, err := reader.Runs(ctx); err != nil || heads[0].ID != "old" {
		t.Errorf("the old reader: got %v, %v", heads, err)
	}

	must(t, reader.Close())
	must(t, shared.Close())
}

// TestSharedFrozen: what can only be read as a copy is copied once until it changes, and no copy remains.
func TestSharedFrozen(t *testing.T) {
	ctx := t.Context()
	copies := t.TempDir()
	t.Setenv("TMPDIR", copies)
	dir := filepath.Join(t.TempDir(), "data")
	path := filepath.Join(dir, "runs.db")
	w, err := Open(ctx, path)
	must(t, err)
	defer w.Close()
	must(t, w.CreateRun(ctx, sampleRun("r1")))
	s, err := openCopy(ctx, path)
	must(t, err)
	s.frozen = true
	shared := NewShared(path)
	shared.open = &reading{Store: s, files: shared.files()}
	shared.open.users.Add(1)
	left, leave := context.WithCancel(ctx)
	reader, err := shared.Open(ctx)
	must(t, err)
	leave()
	_, _ = reader.Runs(left) // which ends its connection
	must(t, reader.Close())
	if ids := listed(t, shared); len(ids) != 1 || shared.open.db != s.db {
		t.Errorf("got %v, want one run from the first copy", ids)
	}

	must(t, w.CreateRun(ctx, sampleRun("r2")))
	if ids := listed(t, shared); len(ids) != 2 || shared.open.db == s.db {
		t.Errorf("got %v, want both runs", ids)
	}

	must(t, shared.Close())
	if left, err := os.ReadDir(copies); err != nil || len(left) > 0 {
		t.Errorf("copies remain: %v, %v", left, err)
	}
}
