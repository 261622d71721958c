package serve

import (
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

// filled returns a server over a store with ended runs of some cells each.
func filled(t testing.TB, place string, runs, cells int) *Server {
	t.Helper()
	ctx := t.Context()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	st, err := store.Open(ctx, place)
	check(err)
	run := labtest.Samples["good"].Run()
	run.ID, run.Name = "run-0", "night"
	results := &record.Results{ResultFacts: record.ResultFacts{
		Derivation: analysis.ResultsDerivation,
		Device:     "board",
		Firmware:   "24.10",
	}}
	for i := range cells {
		results.Cells = append(results.Cells, record.CellResult{
			Factors: factorsOf(i),
			Label:   fmt.Sprintf("wireguard, streams %d, down", i),
			Grade:   "valid",
			Metric:  "goodput_bps",
			Metrics: map[string]record.Estimate{"goodput_bps": {N: 6, Median: 9e8, Low: 8.9e8, High: 9.1e8}},
		})
	}

	check(errors.Join(st.CreateRun(ctx, run), st.EndRun(ctx, run.ID, record.RunDone, "", run.Started),
		st.SetHeadline(ctx, run.ID, &record.Headline{Metric: "goodput_bps", Value: 9e8, Cell: "wireguard",
			Grade: "valid"}), st.SetResults(ctx, run.ID, results), st.Close()))
	driver, source := "sqlite", "file:"+place
	dirs := app.Dirs{State: t.TempDir(), Data: filepath.Dir(place)}
	if store.OnServer(place) {
		driver, source = "pgx", place
		dirs.Store = place
	}

	db, err := sql.Open(driver, source)
	check(err)
	for _, statement := range append(apart.Copies("run-", runs-1), "ANALYZE") {
		_, err := db.ExecContext(ctx, statement)
		check(err)
	}

	check(db.Close())
	s := New(&app.App{Dirs: dirs, Note: func(format string, args ...any) {
		t.Errorf("note: "+format, args...)
	}}, Options{})
	t.Cleanup(func() { check(s.close()) })
	return s
}

// readers gets the paths with some clients at once. It fails if an answer is not 200, and returns the longest
// time of one.
func readers(t testing.TB, s *Server, clients int, paths ...string) (longest time.Duration) {
	t.Helper()
	var all sync.WaitGroup
	var mu sync.Mutex
	for i := range clients {
		all.Go(func() {
			begun := time.Now()
			path := paths[i%len(paths)]
			answer := get(t, s, path)
			if answer.StatusCode != http.StatusOK {
				t.Errorf("%s: got %s", path, answer.Status)
			}

			mu.Lock()
			defer mu.Unlock()
			longest = max(longest, time.Since(begun))
		})
	}

	all.Wait()
	return longest
}

// factorsOf returns the factors of one of the cells.
func factorsOf(cell int) record.Factors {
	return record.Factors{"tunnel": "wireguard", "streams": fmt.Sprint(cell), "direction": "down"}
}

// cellPath returns the path of the history of one cell.
func cellPath() string { return "/history?plan=sample&device=board&cell=" + factorsOf(7).ID() }

// TestReaders: fifty readers at once get all kinds of pages, from a file and from a server, while a run and a
// testbed are stored.
func TestReaders(t *testing.T) {
	for name, place := range map[string]func() string{
		"file":   func() string { return filepath.Join(t.TempDir(), "runs.db") },
		"server": func() string { return apart.Postgres(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			place := place()
			s := filled(t, place, 20, 10)
			st, err := store.Open(t.Context(), place)
			if err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			var writer sync.WaitGroup
			writer.Go(func() {
				for i := range 20 {
					run := labtest.Samples["slow"].Run()
					run.ID = fmt.Sprintf("20260401-000000-%04d", i)
					b := workingBed("lab-1")
					b.Job.Trials = i
					err := errors.Join(st.CreateRun(t.Context(), run), st.SetBed(t.Context(), b))
					if err != nil {
						t.Error(err)
					}
				}
			})
			readers(t, s, 50, "/", "/?q=night", "/devices", "/compare", cellPath(), "/api/v1"+cellPath(),
				"/beds", "/alarms", "/api/v1/runs", "/metrics")
			writer.Wait()
		})
	}
}

// TestLargeHistory: a history with too many results lets the reader choose a cell.
func TestLargeHistory(t *testing.T) {
	s := filled(t, filepath.Join(t.TempDir(), "runs.db"), maxResults/100+1, 100)
	page := text(t, s, "/history?plan=sample&device=board", http.StatusOK)
	contains(t, page, "100 cells on board in 201 runs are too many", `href="/history?cell=`)
	data := text(t, s, "/api/v1/history?plan=sample", http.StatusBadRequest)
	contains(t, data, "the parameter cell chooses")
	contains(t, text(t, s, cellPath(), http.StatusOK), "1 cell on board, 201 runs",
		"The newest 200 of the 201 runs of this chart", "run-200<")
}

// BenchmarkServer reads a server with 1.8 million cell results: 2,000 runs of 900 cells. Aims: a list in
// 150 ms, the history of one cell in 200 ms, 50 readers at once without an error.
func BenchmarkServer(b *testing.B) {
	s := filled(b, apart.Postgres(b), 2000, 900)
	for name, path := range map[string]string{"list": "/", "devices": "/devices", "history": cellPath(),
		"data": "/api/v1" + cellPath()} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				readers(b, s, 1, path)
			}
		})
	}
	b.Run("readers", func(b *testing.B) {
		for b.Loop() {
			longest := readers(b, s, 50, "/", cellPath(), "/?q=night&page=3", "/api/v1"+cellPath(),
				"/devices")
			b.ReportMetric(longest.Seconds(), "s/longest")
		}
	})
}
