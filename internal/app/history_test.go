package app

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/history"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

// What a history reads without trials is what it derives from them; what is imported into a run is derived
// anew, and a store that is only read needs to keep nothing.
func TestHistoryKeepsWhatItDerives(t *testing.T) {
	ctx := t.Context()
	var notes []string
	a := &App{
		Dirs: Dirs{Data: t.TempDir()},
		Note: func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) },
	}
	if err := labtest.WriteNights(ctx, a.Dirs.StoreFile(), 10, 5, .8); err != nil {
		t.Fatal(err)
	}

	ask := func() *history.History {
		h, err := a.History(ctx, HistoryOptions{Cell: "no tunnel"})
		if err != nil {
			t.Fatal(err)
		}

		if len(h.Cells) != 1 || len(h.Cells[0].Points) != 10 || len(h.Cells[0].Changes) != 1 {
			t.Fatalf("history: %+v, want a cell of ten runs and one change", h)
		}
		return h
	}
	derived := ask()
	kept := ask()
	if d := cmp.Diff(derived, kept); d != "" || len(notes) != 1 {
		t.Errorf("notes %q, histories differ (-derived +kept):\n%s", notes, d)
	}

	cause := "kernel on host: 6.1.0-test → 6.6.0-test"
	if got := strings.Join(kept.Cells[0].Changes[0].Causes, "; "); got != cause {
		t.Errorf("causes: got %q, want %q", got, cause)
	}

	last := kept.Cells[0].Points[9].Run
	if err := a.Dirs.addNote(ctx, last, store.Note{}); err != nil {
		t.Fatal(err)
	}

	ask()
	if len(notes) != 2 || !strings.HasPrefix(notes[1], "the results of 1 run were derived") {
		t.Errorf("after an import: notes %q", notes)
	}
}

// A history that cannot be kept is shown nevertheless.
func TestHistoryOfReadOnlyStore(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("skip: root can write everywhere")
	}

	a := &App{Dirs: Dirs{Data: t.TempDir()}}
	if err := labtest.WriteNights(t.Context(), a.Dirs.StoreFile(), 8, 4, .8); err != nil {
		t.Fatal(err)
	}

	for _, file := range []string{a.Dirs.StoreFile(), filepath.Dir(a.Dirs.StoreFile())} {
		if err := os.Chmod(file, 0o500); err != nil {
			t.Fatal(err)
		}
	}
	defer os.Chmod(filepath.Dir(a.Dirs.StoreFile()), 0o700)
	h, err := a.History(t.Context(), HistoryOptions{})
	if err != nil || len(h.Cells) != 2 {
		t.Errorf("got %+v, %v, want two cells", h, err)
	}
}

// A killed run with trials counts. The runs of a series, which alternate between two versions, do not.
func TestRunsOfAHistory(t *testing.T) {
	ctx := t.Context()
	a := &App{Dirs: Dirs{Data: t.TempDir(), State: t.TempDir()}}
	if err := labtest.WriteSample(ctx, a.Dirs.StoreFile(), "killed"); err != nil {
		t.Fatal(err)
	}

	st, err := store.Open(ctx, a.Dirs.StoreFile())
	if err != nil {
		t.Fatal(err)
	}

	for i, series := range []*record.Series{{ID: "upgrade-1", Version: "new", Block: 1}, nil} {
		s := labtest.Samples["hotter"]
		s.ID = fmt.Sprint("run-", i)
		run := s.Run()
		run.Series = series
		err := st.CreateRun(ctx, run)
		for _, trial := range s.Trials() {
			if err == nil && series != nil { // the other one was killed before its first trial
				err = st.AppendTrial(ctx, trial)
			}
		}

		if err != nil {
			t.Fatal(err)
		}
	}

	if err := st.EndRun(ctx, "run-0", record.RunDone, "", time.Now()); err != nil {
		t.Fatal(err)
	}

	if err := st.Close(); err != nil {
		t.Fatal(err)
	}

	for _, from := range []string{"trials", "stored results"} {
		h, err := a.History(ctx, HistoryOptions{Cell: "no tunnel"})
		if err != nil {
			t.Fatal(err)
		}

		if h.Runs != 1 || h.Cells[0].Points[0].Run != labtest.Samples["killed"].ID {
			t.Errorf("from %s: got %+v, want the killed run with trials alone", from, h)
		}
	}
}

// A cell is known by its id with the factor firmware, which other commands print, and without it.
func TestCellWithFirmware(t *testing.T) {
	f := record.Factors{"tunnel": "none"}
	r := results{nil, map[string]*record.Results{"r1": {Cells: []record.CellResult{
		{Factors: f, Firmware: "24.10.0"},
		{Factors: f, Firmware: "24.10.1"},
	}}}}
	full := factor.Firmware.With(f, "24.10.1").ID()
	heads := []store.ResultHead{{ID: "r1"}}
	for _, id := range []string{f.ID(), full} {
		cells, err := r.newestCells(t.Context(), heads, HistoryOptions{Cell: id})
		if err != nil || len(cells) != 1 {
			t.Errorf("cell %s: got %+v, %v, want one", id, cells, err)
		}
	}
}

// BenchmarkHistoryOfThousandRuns follows a cell of twenty over 1,000 runs with a step. CPU time is that of
// the process, which other programs hardly lengthen.
func BenchmarkHistoryOfThousandRuns(b *testing.B) {
	ctx := b.Context()
	a := &App{Dirs: Dirs{Data: b.TempDir()}}
	st, err := store.Open(ctx, a.Dirs.StoreFile())
	if err != nil {
		b.Fatal(err)
	}

	r := rand.New(rand.NewPCG(1, 2))
	for i := range 1000 {
		run := labtest.Sample{Started: time.Date(2024, 1, 1+i, 3, 0, 0, 0, time.UTC)}.Run()
		run.ID = store.NewID(run.Started, 0)
		results := &record.Results{ResultFacts: record.ResultFacts{
			Derivation: analysis.ResultsDerivation,
			Device:     "Example R1",
			Firmware:   "24.10.1",
		}}
		for cell := range 20 {
			f := labtest.Sample{}.Cell("none")
			f["streams"] = fmt.Sprint(cell + 1)
			v := 1e9 * (1 + .01*r.NormFloat64())
			if i >= 600 {
				v *= .97
			}

			metrics := map[string]record.Estimate{}
			for _, name := range []string{"goodput_bps", "retransmits", "rtt_idle_p50_ns",
				"rtt_loaded_p50_ns"} {
				metrics[name] = record.Estimate{N: 6, Median: v, Low: .99 * v, High: 1.01 * v}
			}

			results.Cells = append(results.Cells, record.CellResult{
				Factors: f,
				Label:   fmt.Sprint("streams ", cell+1),
				Grade:   "valid",
				Metric:  "goodput_bps",
				Metrics: metrics,
			})
		}

		err := st.CreateRun(ctx, run)
		if err == nil {
			err = st.SetResults(ctx, run.ID, results)
		}

		if err == nil {
			err = st.EndRun(ctx, run.ID, record.RunDone, "", run.Started)
		}

		if err != nil {
			b.Fatal(err)
		}
	}

	if err := st.Close(); err != nil {
		b.Fatal(err)
	}

	for name, cell := range map[string]string{"cell": "streams 20", "all": ""} {
		b.Run(name, func(b *testing.B) {
			before := cpuTime(b)
			for b.Loop() {
				h, err := a.History(ctx, HistoryOptions{Cell: cell})
				if err != nil || len(h.Cells[0].Changes) == 0 {
					b.Fatalf("%+v, %v, want a change", h, err)
				}
			}

			b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/1e3/float64(b.N), "cpu-ms/op")
		})
	}
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
