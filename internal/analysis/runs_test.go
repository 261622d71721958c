package analysis

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// bare is a document of n blocks with what a comparison of runs reads. Each metric is the value that draw
// gives for a cell.
func bare(n int, cells []record.Factors, names []string, draw func(cell, block int,
	metric string) float64) *Document {
	d := &Document{Metrics: metrics.Metrics()}
	for i, f := range cells {
		c := Cell{
			Cell: metrics.Cell{
				Factors: f,
				Grade:   evidence.GradeValid,
				Metrics: map[string]statistics.Value{},
			},
			Runs: n,
		}
		for block := range n {
			t := TrialView{
				Assignment: record.Assignment{Block: block, Kind: record.RowLoad, Factors: f},
				Metrics:    map[string]float64{},
			}
			for _, m := range names {
				t.Metrics[m] = draw(i, block, m)
				c.Metrics[m] = statistics.Value{Spread: statistics.Spread{N: n}}
			}

			d.Trials = append(d.Trials, t)
		}

		d.Cells = append(d.Cells, c)
	}
	return d
}

var twoCells = []record.Factors{quickFactors(), quickFactors("streams", "4")}

// Two runs of one set-up differ, for the worse or not, in at most 5 % of cases, however many names they
// have.
func TestRunsOfOneSetup(t *testing.T) {
	names := []string{metrics.Goodput, metrics.Retransmits, "rtt_loaded_p50_ns", "rtt_loaded_p99_ns",
		record.HostNode + "_" +
			metrics.CPURatio, record.HostNode + "_" + metrics.Temperature, metrics.EngineCPU,
		metrics.ProbeLate}
	rng := source(70)
	noise := func(int, int, string) float64 { return math.Exp(.2 * rng.NormFloat64()) }
	alarms := 0
	for range draws() {
		c := CompareRuns(bare(6, twoCells, names, noise), bare(6, twoCells, names, noise))
		for _, x := range c.Comparisons {
			if x.Verdict == "different" {
				alarms++
				break
			}
		}
	}

	atMost(t, "runs of one set-up that differ", float64(alarms)/float64(draws()), .05)
}

// What is worse in the second run, and what it has lost.
func TestRegressions(t *testing.T) {
	udp := quickFactors("protocol", "udp")
	cells := append([]record.Factors{udp}, twoCells...)
	names := []string{metrics.Goodput, metrics.PacketRate, metrics.LossRatio, metrics.Retransmits,
		record.HostNode + "_" + metrics.CPURatio}
	steady := func(cell, block int, metric string) float64 {
		if metric == metrics.LossRatio || metric == metrics.Retransmits {
			return 0
		}
		return 100 + float64(block)
	}
	times := func(name string, factor float64) *Document {
		return bare(8, cells, names, func(cell, block int, metric string) float64 {
			v := steady(cell, block, metric)
			if metric == name {
				return v * factor
			}
			return steady(cell, block, metric)
		})
	}
	lossy := func() *Document {
		return bare(8, cells, names, func(cell, block int, metric string) float64 {
			if cell == 0 && metric == metrics.LossRatio {
				return .1 + .001*float64(block)
			}
			return steady(cell, block, metric)
		})
	}
	failed := times("", 1)
	skipped := times("", 1)
	gone := times("", 1)
	missing := times("", 1)
	failed.Cells[1] = Cell{Cell: metrics.Cell{
		Factors: cells[1],
		Grade:   evidence.GradeFailed,
		Reasons: []evidence.Reason{{Text: "no answer"}},
	}}
	skipped.Cells = skipped.Cells[1:]
	skipped.Skipped = []record.Skipped{{Factors: udp, Reason: "no iperf3"}}
	gone.Cells = gone.Cells[1:]
	delete(missing.Cells[1].Metrics, metrics.Retransmits)
	missing.Cells[1].Missing = map[string]string{metrics.Retransmits: "no TCP_INFO"}
	for _, test := range []struct {
		name string
		b    *Document
		want []string
	}{
		{"the same", times("", 1), nil},
		{"faster", times(metrics.Goodput, 1.3), nil},
		{"slower", times(metrics.Goodput, .5), []string{"goodput ×0.500", "goodput ×0.500"}},
		{"busier", times(record.HostNode+"_"+metrics.CPURatio, 1.3), nil},
		{"loss out of nothing", lossy(), []string{"packet loss changed by 10.4 %"}},
		{"failed", failed, []string{"it has no number in the second run: no answer"}},
		{"skipped", skipped, nil},
		{"gone", gone, nil},
		{"a metric missing", missing, []string{"the second run has no retransmits: no TCP_INFO"}},
	} {
		before := times("", 1)
		for i := range before.Cells {
			before.Cells[i].Grade = evidence.GradeSuspect
		}

		c := CompareRuns(before, test.b)
		var got []string
		for _, r := range c.Regressions {
			got = append(got, r.Text)
			if strings.Contains(r.Text, "the second run") && r.Suspect {
				t.Errorf("%s: %q is in doubt because the first run was", test.name, r.Text)
			}
		}

		diff := cmp.Diff(test.want, got)
		if diff != "" {
			t.Errorf("%s (-want +got)\n%s", test.name, diff)
		}
	}

	for words, b := range map[string]*Document{"skipped it: no iperf3": skipped, "has lost it": gone} {
		c := CompareRuns(times("", 1), b)
		why := c.LossWords(udp)
		if len(c.OnlyA) != 1 || c.OnlyA[0].Key() != udp.Key() || why != "the second run "+words ||
			c.Summary[0] != "Worse in the second run, or lost: 1." {
			t.Errorf("%s: only in the first run %v, %q, summary %q", words, c.OnlyA, why, c.Summary)
		}
	}

	if r := CompareRuns(lossy(), times("", 1)).Regressions; len(r) != 0 {
		t.Errorf("loss that went away is a regression: %v", r)
	}
}

// Everything that was recorded and can explain a difference is listed.
func TestChangesOfThePlan(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*RunHead)
	}{
		{"telemetry", func(r *RunHead) { r.Measure.Telemetry = true }},
		{"verify", func(r *RunHead) { r.Measure.Verify = true }},
		{"latency_loaded", func(r *RunHead) { r.Measure.LatencyLoaded = true }},
		{"latency_idle", func(r *RunHead) { r.Measure.LatencyIdle = "off" }},
		{"probe_interval", func(r *RunHead) { r.Measure.ProbeInterval = time.Second }},
		{"duration", func(r *RunHead) { r.Method.Duration *= 2 }},
		{"duration, no cause", func(r *RunHead) { r.Method.Duration += r.Method.Duration / 2 }},
		{"", func(r *RunHead) { r.Method.Duration = 0 }},
		{"cooldown", func(r *RunHead) { r.Method.Cooldown = time.Second }},
		{"idle", func(r *RunHead) { r.Method.Idle = time.Second }},
		{"hash of the program", func(r *RunHead) { r.BinaryHash = "00" }},
		{"chokepoint", func(r *RunHead) { r.Version, r.BinaryHash = "2", "00" }},
	} {
		run, trials := quickRun(1)
		run.BinaryHash = "ff"
		run.Design.Measure.LatencyIdle = "block"
		a := Derive(run, trials)
		b := Derive(run, trials)
		test.change(&b.Run)
		got := ""
		for _, c := range changes(a, b) {
			got += c.Name
			if !c.Cause {
				got += ", no cause"
			}
		}

		if got != test.name {
			t.Errorf("%s: changes %s", test.name, got)
		}

		words := CompareRuns(a, b).Summary
		if strings.HasPrefix(words[len(words)-1], "No setting") != (test.name == "") {
			t.Errorf("%s: summary %q", test.name, words)
		}
	}

	run, _ := quickRun(1)
	run.BinaryHash, run.Design.Measure.Telemetry = "ff", true
	h := head(&run)
	if h.BinaryHash != "ff" || !h.Measure.Telemetry {
		t.Errorf("head %+v lacks what was recorded", h)
	}
}

func source(label uint64) *rand.Rand { return rand.New(rand.NewPCG(20260101, label)) }

func atMost(t *testing.T, what string, got, most float64) {
	t.Helper()
	se := math.Sqrt(most * (1 - most) / float64(draws()))
	if got > most+4*se {
		t.Errorf("%s = %.4f, want at most %.4f", what, got, most)
	}
}

// draws returns how many random runs a rate of false alarms is counted in.
func draws() int {
	if apart.Wanted() {
		return 10000
	}
	return 2000
}
