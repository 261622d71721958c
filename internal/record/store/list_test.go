package store

import (
	"database/sql"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A list of 1,000 runs takes 50 ms at most: CPU time, so that other programs do not count.
func TestListOfThousandRuns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	s, err := Open(t.Context(), path)
	must(t, err)
	must(t, s.CreateRun(t.Context(), sampleRun("template")))
	must(t, s.AppendTrial(t.Context(), sampleTrial("template", 1)))
	must(t, s.SetName(t.Context(), "template", "first"))
	must(t, s.SetHeadline(t.Context(), "template", sampleHeadline()))
	must(t, s.inTx(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), `
			WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
			INSERT INTO runs SELECT 'run-' || i, stored_ns + i, started_ns, plan, lab, line, head FROM n, runs;
			INSERT INTO run_labels (run, kind, text) SELECT r.id, l.kind, l.text || iif(l.kind = 'name', r.id, '')
				FROM run_labels l, runs r WHERE r.id <> 'template';
			INSERT INTO run_ends (run, status, reason, ended_ns) SELECT id, 'done', '', started_ns FROM runs;
			WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 29)
			INSERT INTO trials SELECT r.id, 'b1-r' || i || '.1', 'b1-r' || i, 1, i, t.cell, 1, t.status,
				t.started_ns, t.body, t.series FROM n, trials t, runs r WHERE r.id <> 'template'`)
		return err
	}))
	must(t, s.Close())
	var took time.Duration
	for i := range 5 {
		before := processTime(t)
		s, err := OpenReadOnly(t.Context(), path)
		must(t, err)
		heads, err := s.Runs(t.Context())
		must(t, err)
		must(t, s.Close())
		d := processTime(t) - before
		if i == 0 || d < took {
			took = d
		}

		h := heads[0]
		if len(heads) != 1001 || h.ID != "run-1000" || h.Trials != 29 || h.Status != "done" ||
			h.Name != "firstrun-1000" || h.Headline == nil || len(h.Varied) != 1 || h.Device == "" {
			t.Fatalf("%d runs, first %+v", len(heads), h)
		}
	}

	t.Logf("a list of 1,001 runs with 29 trials each: %v of CPU time", took)
	if took > 50*time.Millisecond && !raceDetector {
		t.Errorf("a list of 1,001 runs took %v of CPU time, want 50 ms at most", took)
	}
}

func processTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
