package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestAlive: other programs see who records as long as that lasts, also where they can only read.
func TestAlive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	s, err := Open(t.Context(), path)
	must(t, err)
	must(t, s.CreateRun(t.Context(), sampleRun("a")))
	t.Cleanup(func() { must(t, s.Close()) })
	reader, err := OpenReadOnly(t.Context(), path)
	must(t, err)
	t.Cleanup(func() { must(t, reader.Close()) })
	alive := func(run string, want bool) {
		t.Helper()
		if got, err := reader.Alive(run); got != want || err != nil {
			t.Errorf("run %q: got %v, %v, want %v", run, got, err, want)
		}
	}
	alive("a", false) // there is no file yet
	must(t, os.Chmod(path, 0o640))
	end, err := s.Record("a", "b")
	must(t, err)
	if info, err := os.Stat(path + "-alive"); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode of the locks: got %v, %v, want that of the store", info.Mode(), err)
	}

	for run, want := range map[string]bool{"a": true, "b": true, "c": false, "": true} {
		alive(run, want)
	}

	_, err = s.Record("c", "b")
	if taken, ok := errors.AsType[*AliveError](err); !ok || taken.Run != "b" {
		t.Errorf("record b twice: got %v", err)
	}

	alive("c", false) // it was let go of
	other, err := s.Record("c")
	must(t, err)
	must(t, end.Close())
	alive("a", false)
	alive("", true)
	must(t, other.Close())
	alive("", false)
}

// TestAliveOnServer: a server has only runs that have ended.
func TestAliveOnServer(t *testing.T) {
	s := &Store{server: true}
	end, err := s.Record("a")
	must(t, err)
	alive, err := s.Alive("a")
	if alive || err != nil || end.Close() != nil {
		t.Errorf("got %v, %v, want false", alive, err)
	}
}
