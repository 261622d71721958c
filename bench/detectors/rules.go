package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/history"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// firstNight is the number of nights that every rule gets before it may raise an alarm.
const firstNight = 10

// found holds the change points that a rule reports in each night from the values up to then, as the index of
// the first night after the change.
type found [][]int

// Names of rules.
const (
	ruleOtava       = "apache-otava"
	ruleJumpavg     = "jumpavg"
	ruleOutlier     = "z > 5 (like Conbench)"
	ruleWindows     = "t > 7, ≥ 2 % (like Perfherder)"
	ruleProposed    = "`history`, proposed"
	ruleConfirmed   = "`history`, confirmed"
	ruleRetested    = "proposed, then `upgrade`"
	ruleInterleaved = "`upgrade` each night"
)

// outlier reports the newest value if it is far from all before, in their standard deviations.
func outlier(values []float64) []int {
	const far, maxBack = 5, 100
	last := len(values) - 1
	before := values[max(0, last-maxBack):last]
	mean, variance := moments(before, func(int) float64 { return 1 })
	if math.Abs(values[last]-mean) > far*math.Sqrt(variance) {
		return []int{last}
	}

	return nil
}

// moments returns the weighted mean of values, and their variance around it.
func moments(values []float64, weight func(i int) float64) (mean, variance float64) {
	weights := 0.0
	for i, v := range values {
		mean += v * weight(i)
		weights += weight(i)
	}

	mean /= weights
	for _, v := range values {
		variance += (v - mean) * (v - mean) / float64(len(values)-1)
	}

	return mean, variance
}

// windows compares the 12 values from each night on with 12 to 24 values before it, by Student's t with
// weights that fall with the distance. It reports maxima of t above 7 where the means differ by 2 %.
func windows(values []float64) (out []int) {
	const back, maxBack, ahead, high, relevant = 12, 24, 12, 7, .02
	t, change := make([]float64, len(values)+1), make([]float64, len(values)+1)
	since := 0
	for i := 1; i < len(values); i++ {
		before := slices.Clone(values[max(0, i-min(max(since, back), maxBack)):i])
		slices.Reverse(before)
		after := values[i:min(len(values), i+ahead)]
		a, va := moments(before, falling(len(before)))
		b, vb := moments(after, falling(len(after)))
		since++
		if len(before) < 2 || len(after) < 2 {
			continue
		}

		t[i] = math.Abs(b-a) / math.Sqrt(va/float64(len(before))+vb/float64(len(after)))
		change[i] = math.Abs(b/a - 1)
		if t[i] > high {
			since = 0
		}
	}

	for i := back; i+ahead <= len(values); i++ {
		if t[i] > high && t[i] >= t[i-1] && t[i] >= t[i+1] && change[i] >= relevant {
			out = append(out, i)
		}
	}

	return out
}

// falling returns weights that fall linearly over n values.
func falling(n int) func(i int) float64 {
	return func(i int) float64 { return float64(n-i) / float64(n) }
}

// changePoints returns those of chokepoint history, and those of them that it calls confirmed.
func changePoints(values []float64) (proposed, confirmed []int) {
	var runs []history.Run
	newest := record.CellResult{Metric: metrics.Goodput}
	for i, v := range values {
		x := newest
		x.Metrics = map[string]record.Estimate{metrics.Goodput: {Median: v}}
		runs = append(runs, history.Run{
			ID:      strconv.Itoa(i),
			Started: time.Unix(0, 0).AddDate(0, 0, i),
			Results: []record.CellResult{x},
		})
	}

	for _, c := range history.Of(newest, runs, "", "").Changes {
		at, _ := strconv.Atoi(c.After) // as made above
		proposed = append(proposed, at)
		if c.Status == history.Confirmed {
			confirmed = append(confirmed, at)
		}
	}

	return proposed, confirmed
}

// interleaved applies the rule of chokepoint upgrade to pairs of an old and a new version. The sign of the
// change is 0 if there is none.
func interleaved(pairs [][2]float64) (sign int) {
	v := comparison.Versions{Metric: metrics.Goodput, Old: map[int]float64{}, New: map[int]float64{}}
	for i, p := range pairs {
		if i == comparison.VersionBlocks && !v.Unrepeated() {
			return 0
		}

		v.Old[i+1], v.New[i+1] = p[0], p[1]
	}

	c := comparison.OfVersions([][]comparison.Versions{{v}})[0]
	switch {
	case len(c) == 0 || c[0].Verdict != statistics.Different:
		return 0
	case c[0].Ratio < 1:
		return -1
	}
	return 1
}

//go:embed peers.py
var peers string

// peerTask is a line of input to peers.py.
type peerTask struct {
	Values  []float64 `json:"values"`
	Lengths []int     `json:"lengths"` // numbers of its first values
}

// askPeers returns what the packages of other programs report of each task, by the name of the package.
func askPeers(ctx context.Context, python string, tasks []peerTask,
	log io.Writer) ([]map[string]found, error) {
	var in bytes.Buffer
	lines := json.NewEncoder(&in)
	for _, t := range tasks {
		if err := lines.Encode(t); err != nil {
			return nil, err
		}
	}

	cmd := exec.CommandContext(ctx, python, "-c", peers)
	cmd.Stdin, cmd.Stderr = &in, log
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("ask apache-otava and jumpavg: %w", err)
	}

	var all []map[string]found
	answers := json.NewDecoder(bytes.NewReader(out))
	for range tasks {
		var x map[string]found
		if err := answers.Decode(&x); err != nil {
			return nil, fmt.Errorf("read what apache-otava and jumpavg report: %w", err)
		}

		all = append(all, x)
	}

	return all, nil
}
