package store

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// resultsAt returns results of two cells, one of them with two levels of the factor firmware.
func resultsAt(median float64) *record.Results {
	value := map[string]record.Estimate{"goodput_bps": {N: 6, Median: median, Low: median, High: median}}
	of := func(tunnel, firmware string) record.CellResult {
		return record.CellResult{
			Factors:  record.Factors{"tunnel": tunnel},
			Firmware: firmware,
			Label:    tunnel,
			Grade:    "valid",
			Metric:   "goodput_bps",
			Metrics:  value,
		}
	}
	return &record.Results{
		ResultFacts: record.ResultFacts{Derivation: 1, Device: "Example R1", Firmware: "24.10.1"},
		Cells:       []record.CellResult{of("none", "24.10.0"), of("none", "24.10.1"), of("wireguard", "")},
	}
}

// Results are replaced as a whole, found by run and by cell, and vanish with their run.
func testResults(t *testing.T, s *Store) {
	ctx := t.Context()
	must(t, s.CreateRun(ctx, sampleRun("r1")))
	none, err := s.RunsOfCell(ctx, record.Factors{"tunnel": "none"})
	if err != nil || len(none) > 0 {
		t.Errorf("before any results: got %v, %v", none, err)
	}

	heads, err := s.ResultHeads(ctx)
	must(t, err)
	if len(heads) != 1 || heads[0].Derivation != 0 || heads[0].Status != record.RunRunning {
		t.Errorf("before any results: got %+v", heads)
	}

	second := sampleRun("r2")
	second.Name = "second"
	second.Started = sampleStart.AddDate(0, 0, 1)
	must(t, s.CreateRun(ctx, second))
	must(t, s.EndRun(ctx, "r2", record.RunDone, "", second.Started))
	must(t, s.SetResults(ctx, "r1", resultsAt(1)))
	must(t, s.SetResults(ctx, "r1", resultsAt(2)))
	must(t, s.SetResults(ctx, "r2", resultsAt(3)))

	heads, err = s.ResultHeads(ctx)
	must(t, err)
	want := []ResultHead{{
		ID:          "r2",
		Name:        "second",
		Started:     second.Started,
		Plan:        "quick",
		Status:      record.RunDone,
		ResultFacts: resultsAt(3).ResultFacts,
	}, {
		ID:          "r1",
		Started:     sampleStart,
		Plan:        "quick",
		Status:      record.RunRunning,
		ResultFacts: resultsAt(2).ResultFacts,
	}}
	if d := cmp.Diff(heads, want, same); d != "" {
		t.Errorf("heads differ (-got +want):\n%s", d)
	}

	byRun, err := s.RunsOfCell(ctx, record.Factors{"tunnel": "none", "firmware": "24.10.7"})
	must(t, err)
	wantRuns := map[string][]record.CellResult{"r1": resultsAt(2).Cells[:2], "r2": resultsAt(3).Cells[:2]}
	for _, cells := range wantRuns {
		for i := range cells {
			cells[i].Factors = nil
		}
	}

	if d := cmp.Diff(byRun, wantRuns, same); d != "" {
		t.Errorf("runs of a cell differ (-got +want):\n%s", d)
	}

	cells, err := s.CellsOfRun(ctx, "r2")
	if err != nil || len(cells) != 3 {
		t.Errorf("cells of a run: got %+v, %v, want three", cells, err)
	}

	must(t, s.SetResults(ctx, "r2", nil))
	must(t, s.Remove(ctx, "r1"))
	byRun, err = s.RunsOfCell(ctx, record.Factors{"tunnel": "none"})
	if err != nil || len(byRun) > 0 {
		t.Errorf("after both are gone: got %v, %v", byRun, err)
	}

	must(t, s.Verify(ctx))
	if err := s.SetResults(ctx, "nobody", resultsAt(1)); err == nil {
		t.Error("the results of an unknown run were stored")
	}
}

// A store that is only read needs no results.
func TestResultsOfReadOnlyStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	s, err := Open(t.Context(), path)
	must(t, err)
	must(t, s.CreateRun(t.Context(), sampleRun("r1")))
	must(t, s.Close())
	s, err = OpenReadOnly(t.Context(), path)
	must(t, err)
	defer s.Close()
	heads, err := s.ResultHeads(t.Context())
	if err != nil || len(heads) != 1 {
		t.Errorf("heads: got %+v, %v, want one", heads, err)
	}

	if err := s.SetResults(t.Context(), "r1", resultsAt(1)); err == nil {
		t.Error("results were written to a store that is only read")
	}
}
