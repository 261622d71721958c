package store

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// fill stores ended runs of some cells each, with results, names and headlines; on a server with the counts
// of trials that sent runs have.
func fill(b *testing.B, s *Store, runs, cells int) {
	b.Helper()
	ctx := b.Context()
	check := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	check(s.CreateRun(ctx, sampleRun("run-0")))
	check(s.EndRun(ctx, "run-0", record.RunDone, "", sampleStart))
	check(s.SetName(ctx, "run-0", "night"))
	check(s.SetHeadline(ctx, "run-0", sampleHeadline()))
	results := resultsAt(1)
	one := results.Cells[0]
	results.Cells = nil
	estimate := one.Metrics["goodput_bps"]
	one.Metrics = map[string]record.Estimate{}
	for _, metric := range []string{"goodput_bps", "packet_rate_pps", "rtt_loaded_p99_ns", "cpu_busy"} {
		one.Metrics[metric] = estimate
	}

	for i := range cells {
		one.Factors = record.Factors{"tunnel": "wireguard", "streams": fmt.Sprint(i), "direction": "down"}
		one.Label = fmt.Sprintf("wireguard, streams %d, down", i)
		results.Cells = append(results.Cells, one)
	}

	check(s.SetResults(ctx, "run-0", results))
	check(s.inTx(ctx, func(tx *sql.Tx) error {
		if s.server {
			if err := setLabel(ctx, tx, "run-0", labelCounts, "900 0 0"); err != nil {
				return err
			}
		}

		for _, q := range apart.Copies("run-", runs-1) {
			if _, err := tx.ExecContext(ctx, q); err != nil {
				return err
			}
		}
		return nil
	}))
	_, err := s.db.ExecContext(ctx, `ANALYZE`) // as autovacuum does
	check(err)
}

// BenchmarkServer reads a server with 1.8 million cell results: 2,000 runs of 900 cells. Aims: a list in
// 150 ms, the history of one cell in 200 ms.
func BenchmarkServer(b *testing.B) {
	s, err := Open(b.Context(), apart.Postgres(b))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	fill(b, s, 2000, 900)
	b.Run("list", func(b *testing.B) { list(b, s, 2000) })
	b.Run("history", func(b *testing.B) {
		for b.Loop() {
			heads, err := s.ResultHeads(b.Context())
			if err != nil || len(heads) != 2000 {
				b.Fatalf("%d runs, %v", len(heads), err)
			}

			cells, err := s.CellsOfRun(b.Context(), heads[0].ID)
			if err != nil || len(cells) != 900 {
				b.Fatalf("%d cells, %v", len(cells), err)
			}

			byRun, err := s.RunsOfCell(b.Context(), cells[7].Factors)
			if err != nil || len(byRun) != 2000 {
				b.Fatalf("%d runs of a cell, %v", len(byRun), err)
			}
		}
	})
}

// BenchmarkFile lists a file with 1,000 runs. Aim: 50 ms.
func BenchmarkFile(b *testing.B) {
	s, err := Open(b.Context(), filepath.Join(b.TempDir(), "runs.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	fill(b, s, 1000, 10)
	b.Run("list", func(b *testing.B) { list(b, s, 1000) })
}

func list(b *testing.B, s *Store, want int) {
	for b.Loop() {
		heads, err := s.Runs(b.Context())
		if err != nil || len(heads) != want || heads[0].Headline == nil || heads[0].Damaged != "" {
			b.Fatalf("%d runs, %v", len(heads), err)
		}
	}
}
