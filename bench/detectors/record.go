package main

import (
	"bufio"
	"compress/gzip"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

//go:embed night.yaml
var nightPlan string

// recordedRun is a line of the recording: a stored run, reduced to the rates of its trials.
type recordedRun struct {
	Started time.Time      `json:"started"`
	Busy    int            `json:"busy,omitempty"` // processes that kept cores busy beside it: a bad night
	Cells   []recordedCell `json:"cells"`
}

// recordedCell holds the rates of a cell by block, in bit/s or packets per second, and how many of the trials
// the program marks as suspect.
type recordedCell struct {
	Label   string    `json:"label"`
	Rates   []float64 `json:"rates"`
	Suspect int       `json:"suspect"`
}

// recordRuns measures the plan n times, each time in a new lab, and adds the runs to the file. Meanwhile, the
// given number of busy processes takes CPU time from the lab.
func recordRuns(ctx context.Context, file string, n, busy int, log io.Writer) (err error) {
	for range busy {
		cmd := exec.CommandContext(ctx, "sh", "-c", "while :; do :; done")
		if err := cmd.Start(); err != nil {
			return err
		}
		defer func() { _ = errors.Join(cmd.Process.Kill(), cmd.Wait()) }() // its status is that of a kill
	}

	dir, err := os.MkdirTemp("", "chokepoint-detectors-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program, err := rig.Folders(dir, os.Geteuid())
	if err != nil {
		return err
	}

	for i := range n {
		pl, err := app.ReadPlan("night.yaml", nightPlan, app.Peer{})
		if err != nil {
			return err
		}

		s, err := rig.Run(ctx, program.App(), pl.WithSeed(uint64(time.Now().UnixNano())>>1), record.LabLocal,
			app.RunOptions{})
		if err != nil {
			return err
		}

		r := reduce(s.Document)
		r.Busy = busy
		if err := appendRun(file, r); err != nil {
			return err
		}

		fmt.Fprintf(log, "run %d of %d:", i+1, n)
		for _, c := range r.Cells {
			fmt.Fprintf(log, " %s %.4g (%d suspect);", c.Label, statistics.Median(c.Rates), c.Suspect)
		}

		fmt.Fprintln(log)
	}
	return nil
}

// reduce returns what is kept of a run. Blocks in which a cell has no rate are missing there.
func reduce(d *analysis.Document) recordedRun {
	r := recordedRun{Started: d.Run.Started}
	for _, c := range d.Cells {
		kept := recordedCell{Label: c.Label, Rates: statistics.ByBlock(c.Blocks[metrics.RateOf(c.Factors)])}
		for _, t := range d.Trials {
			if t.Factors.Key() == c.Factors.Key() && t.Grade == evidence.GradeSuspect {
				kept.Suspect++
			}
		}

		r.Cells = append(r.Cells, kept)
	}

	return r
}

// appendRun adds a run to a file of compressed lines of JSON.
func appendRun(file string, r recordedRun) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}

	z := gzip.NewWriter(f)
	return errors.Join(json.NewEncoder(z).Encode(r), z.Close(), f.Close())
}

// readRuns reads the recording.
func readRuns(file string) (runs []recordedRun, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(bufio.NewReader(f))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}

	lines := json.NewDecoder(z)
	for {
		var r recordedRun
		err := lines.Decode(&r)
		if errors.Is(err, io.EOF) {
			return runs, nil
		}

		if err != nil {
			return nil, fmt.Errorf("read run %d of %s: %w", len(runs)+1, file, err)
		}

		runs = append(runs, r)
	}
}
