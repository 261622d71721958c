package store

import (
	"errors"
	"flag"
	"fmt"
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

// TestFormats reads the samples of all schema versions, forever: a later version gets a file of its own and
// the others stay as they are.
func TestFormats(t *testing.T) {
	for version := range migrations {
		name := fmt.Sprintf("format-%d.db", version+1)
		t.Run(name, func(t *testing.T) { testFormat(t, filepath.Join("testdata", name)) })
	}
}

func testFormat(t *testing.T, sample string) {
	if _, err := os.Stat(sample); *update && errors.Is(err, fs.ErrNotExist) {
		writeSample(t, sample)
	}
	data, err := os.ReadFile(sample)
	must(t, err)
	path := filepath.Join(t.TempDir(), "runs.db")
	must(t, os.WriteFile(path, data, 0o600))
	s, err := OpenReadOnly(t.Context(), path) // which brings it forward
	must(t, err)
	defer s.Close()
	must(t, s.Verify(t.Context()))

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

	// Compacted it is the same, in today's form.
	must(t, s.Close())
	s, err = Open(t.Context(), path)
	must(t, err)
	defer s.Close()
	before, after, err := s.Compact(t.Context())
	must(t, err)
	if after > before {
		t.Errorf("compacted from %d bytes to %d", before, after)
	}
	must(t, s.Verify(t.Context()))
	trials, err = s.Trials(t.Context(), formatRun)
	must(t, err)
	if d := cmp.Diff(trials, wantTrials, same); d != "" {
		t.Errorf("compacted trials differ (-got +want):\n%s", d)
	}
	var old int
	must(t, s.db.QueryRowContext(t.Context(),
		`SELECT (SELECT count(*) FROM blobs) + count(*) FILTER (WHERE series IS NULL) FROM trials`).Scan(&old))
	if _, err := s.db.ExecContext(t.Context(), `UPDATE trials SET body = 'x'`); old != 0 || err == nil {
		t.Errorf("compacted: %d trials in the old form; a change: %v, want an error", old, err)
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
