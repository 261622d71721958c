package store

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

var update = flag.Bool("update", false, "write the sample file of the current format, if there is none")

const formatRun = "20261121-153012-4f2a"

// formatNote is added to the sample's run after its first trial.
var formatNote = Note{Caveats: []record.Caveat{{Kind: "few-runs", Text: "two runs, no interval"}}}

// TestFormat reads a store that was written when its format was defined.
func TestFormat(t *testing.T) {
	sample := filepath.Join("testdata", fmt.Sprintf("format-%d.db", schemaVersion))
	if _, err := os.Stat(sample); *update && errors.Is(err, fs.ErrNotExist) {
		writeSample(t, sample)
	}

	data, err := os.ReadFile(sample)
	must(t, err)
	path := filepath.Join(t.TempDir(), "runs.db")
	must(t, os.WriteFile(path, data, 0o600))
	s, err := OpenReadOnly(t.Context(), path)
	must(t, err)
	defer s.Close()
	must(t, s.Verify(t.Context()))

	want := sampleRun(formatRun)
	want.Status, want.Ended = record.RunDone, sampleStart.Add(time.Minute)
	want.Caveats = formatNote.Caveats
	want.Name = "stock"
	got, err := s.Find(t.Context(), "latest")
	must(t, err)
	if d := cmp.Diff(got, want, same); d != "" {
		t.Errorf("run differs (-got +want):\n%s", d)
	}

	heads, err := s.Runs(t.Context())
	must(t, err)
	wantHead := Head{
		ID:       formatRun,
		Name:     "stock",
		Started:  sampleStart,
		Plan:     "quick",
		Lab:      "local",
		Line:     Line{Device: want.Device, Notes: want.Notes, Varied: want.Design.Factors},
		Status:   record.RunDone,
		Trials:   2,
		Headline: sampleHeadline(),
	}
	if d := cmp.Diff(heads, []Head{wantHead}, same); d != "" {
		t.Errorf("list differs (-got +want):\n%s", d)
	}

	trials, err := s.Trials(t.Context(), formatRun)
	must(t, err)
	wantTrials := []record.Trial{sampleTrial(formatRun, 1), sampleTrial(formatRun, 2)}
	if d := cmp.Diff(trials, wantTrials, same); d != "" {
		t.Errorf("trials differ (-got +want):\n%s", d)
	}

	// Compacted it is the same.
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

	if _, err := s.db.ExecContext(t.Context(), `UPDATE trials SET body = 'x'`); err == nil {
		t.Error("compacted: a change was accepted")
	}
}

// A store of another version is refused as it is.
func TestOtherVersions(t *testing.T) {
	for version, want := range map[int]struct{ err, hint string }{
		1:                 {"never released", "move that file away"},
		2:                 {"never released", "move that file away"},
		3:                 {"never released", "move that file away"},
		schemaVersion + 1: {fmt.Sprintf("version %d", schemaVersion+1), "newer chokepoint"},
	} {
		s := newStore(t)
		must(t, s.CreateRun(t.Context(), sampleRun(formatRun)))
		_, err := s.db.ExecContext(t.Context(), fmt.Sprintf(`PRAGMA user_version = %d`, version))
		must(t, err)
		must(t, s.Close())
		before, err := os.ReadFile(s.path)
		must(t, err)
		for name, open := range map[string]func(context.Context, string) (*Store, error){
			"write": Open, "read": OpenReadOnly} {
			_, err := open(t.Context(), s.path)
			var other *VersionError
			if !errors.As(err, &other) || other.Has != version || !strings.Contains(err.Error(), want.err) ||
				!strings.Contains(check.HintOf(err), want.hint) {
				t.Errorf("open to %s a store of version %d: %v, hint %q", name, version, err,
					check.HintOf(err))
			}
		}

		after, err := os.ReadFile(s.path)
		must(t, err)
		if !bytes.Equal(before, after) {
			t.Errorf("a store of version %d was changed", version)
		}
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
	must(t, s.SetName(ctx, formatRun, "first"))
	must(t, s.SetName(ctx, formatRun, "stock"))
	must(t, s.SetHeadline(ctx, formatRun, sampleHeadline()))
	must(t, s.Close())
}
