package store

import (
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

var update = flag.Bool("update", false, "write the sample file of the current format, if there is none")

const formatRun = "20261121-153012-4f2a"

// formatNote is added to the sample's run after its first trial.
var formatNote = Note{Caveats: []record.Caveat{{Kind: "few-runs", Text: "two runs, no interval"}}}

// TestFormat1 reads the sample of schema version 1, forever: a later version gets a file of its own and
// this one stays as it is.
func TestFormat1(t *testing.T) {
	sample := filepath.Join("testdata", "format-1.db")
	if _, err := os.Stat(sample); *update && errors.Is(err, fs.ErrNotExist) {
		writeSample(t, sample)
	}
	data, err := os.ReadFile(sample)
	must(t, err)
	path := filepath.Join(t.TempDir(), "runs.db")
	must(t, os.WriteFile(path, data, 0o600))
	s, err := Open(t.Context(), path)
	must(t, err)
	defer s.Close()

	want := sampleRun(formatRun)
	want.Status, want.Ended = record.RunDone, sampleStart.Add(time.Minute)
	want.Caveats = formatNote.Caveats
	got, err := s.Find(t.Context(), "latest")
	must(t, err)
	if d := cmp.Diff(got, want, same); d != "" {
		t.Errorf("run differs (-got +want):\n%s", d)
	}
	trials, err := s.Trials(t.Context(), formatRun)
	must(t, err)
	wantTrials := []record.Trial{sampleTrial(formatRun, 1), sampleTrial(formatRun, 2)}
	if d := cmp.Diff(trials, wantTrials, same); d != "" {
		t.Errorf("trials differ (-got +want):\n%s", d)
	}
}

func writeSample(t *testing.T, path string) {
	t.Helper()
	s, err := Open(t.Context(), path)
	must(t, err)
	ctx := t.Context()
	must(t, s.CreateRun(ctx, sampleRun(formatRun)))
	must(t, s.AppendTrial(ctx, sampleTrial(formatRun, 1)))
	must(t, s.AddNote(ctx, formatRun, formatNote))
	must(t, s.AppendTrial(ctx, sampleTrial(formatRun, 2)))
	must(t, s.EndRun(ctx, formatRun, record.RunDone, "", sampleStart.Add(time.Minute)))
	must(t, s.Close())
}
