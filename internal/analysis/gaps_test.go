package analysis

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Whatever a trial lacks, the document is made and can be written as JSON.
func TestDeriveSurvivesGaps(t *testing.T) {
	f := quickFactors("tunnel", "wireguard")
	nan := record.NewTable("bytes")
	nan.Append(0, math.NaN())
	nan.Append(1e9, math.NaN())
	tests := map[string]func(t *record.Trial){
		"no traffic":    func(t *record.Trial) { t.Traffic = nil },
		"no flows":      func(t *record.Trial) { t.Traffic.Flows = nil },
		"no series":     func(t *record.Trial) { t.Traffic.Flows[0].Received = nil },
		"series of NaN": func(t *record.Trial) { t.Traffic.Flows[0].Received = nan },
		"empty series":  func(t *record.Trial) { t.Traffic.Flows[0].Received = record.NewTable("bytes") },
		"no window":     func(t *record.Trial) { t.Window = record.Window{} },
		"window inverse": func(t *record.Trial) {
			t.Window.Start, t.Window.End = t.Window.End,
				t.Window.Start
		},
		"no TCP":  func(t *record.Trial) { t.Traffic.Flows[0].TCP = nil },
		"no ends": func(t *record.Trial) { t.Traffic.Ends = nil },
		"zero lengths": func(t *record.Trial) {
			t.Traffic.Flows[0].ReceiverNs,
				t.Traffic.Flows[0].SenderNs = 0, 0
		},
		"no probes": func(t *record.Trial) { t.Loaded = &record.Latency{} },
		"all lost": func(t *record.Trial) {
			for i := range t.Loaded.RTT {
				t.Loaded.RTT[i] = -1
			}
		},
		"send times missing": func(t *record.Trial) { t.Loaded.SentAt = nil },
		"no nodes":           func(t *record.Trial) { t.Nodes = nil },
		"empty nodes": func(t *record.Trial) {
			t.Nodes = map[string]record.NodeData{"host": {},
				"router": {}}
		},
		"no path":    func(t *record.Trial) { t.Path = nil },
		"no factors": func(t *record.Trial) { t.Row.Factors = nil },
		"odd factors": func(t *record.Trial) {
			t.Row.Factors = record.Factors{"mtu": "x", "tunnel": "wireguard", "link_mtu": "-1",
				"packet_size": "", "queue": "tbf rate"}
		},
		"tiny MTU": func(t *record.Trial) {
			t.Row.Factors = quickFactors("tunnel", "wireguard", "mtu", "60", "link_mtu", "68")
		},
		"unknown status": func(t *record.Trial) { t.Status = "" },
		"failed bare":    func(t *record.Trial) { t.Status = record.TrialFailed },
		"cpu of NaN": func(t *record.Trial) {
			for _, v := range table(t, "host", "cpu").V {
				for i := range v {
					v[i] = math.NaN()
				}
			}
		},
		"counters run backwards": func(t *record.Trial) {
			for _, v := range table(t, "router", "netdev").V {
				for i := range v {
					v[i] = -v[i]
				}
			}
		},
	}
	for name, break_ := range tests {
		t.Run(name, func(t *testing.T) {
			trial := newSynthetic(1).trial(f, 1, 1, 1e9)
			break_(&trial)
			run := syntheticRun(f)
			d := Derive(run, []record.Trial{trial, newSynthetic(2).idle(f, 1, 2)})
			if _, err := json.Marshal(d); err != nil {
				t.Error(err)
			}

			if _, err := json.Marshal(CompareRuns(d, d)); err != nil {
				t.Error(err)
			}

			for _, c := range d.Cells {
				if c.Grade == evidence.GradeValid && c.Metrics[metrics.Goodput].N == 0 {
					t.Errorf("%s is valid and has no goodput", c.Label)
				}
			}
		})
	}

	for name, run := range map[string]record.Run{"nothing": {}, "no trials": syntheticRun(f)} {
		d := Derive(run, nil)
		if b, err := json.Marshal(d); err != nil || len(b) == 0 {
			t.Errorf("%s: %v", name, err)
		}

		if d.Cells == nil || d.Trials == nil || d.Skipped == nil || len(d.Summary) == 0 {
			t.Errorf("%s: lists are null: %+v", name, d)
		}
	}
}

// Probes that were all lost are not probes that never ran.
func TestLatencyOfLostProbes(t *testing.T) {
	const p50 = "rtt_loaded_p50_ns"
	f := quickFactors()
	lose := func(all bool) *Cell {
		run, trials := quickRun(3)
		for i := range trials {
			r := trials[i].Row
			if r.Kind == record.RowLoad && r.Factors.Key() == f.Key() &&
				(all || r.Block == 2) {
				for k := range trials[i].Loaded.RTT {
					trials[i].Loaded.RTT[k] = -1
				}
			}
		}
		return cellOf(t, Derive(run, trials), f)
	}
	c := lose(false)
	if c.Metrics[p50].N != 2 || c.Metrics[metrics.ProbeLoss].N != 3 {
		t.Errorf("n = %d of the latency and %d of the loss, want 2 and 3", c.Metrics[p50].N,
			c.Metrics[metrics.ProbeLoss].N)
	}

	var got []string
	for _, k := range c.Caveats {
		if k.Kind == "partly-missing" {
			got = append(got, k.Text)
		}
	}

	want := []string{"loaded round trip: known in 2 of 3 trials (no probe was answered)",
		"round trip added by load: known in 2 of 3 trials (no probe was answered)"}
	for _, text := range want {
		if !slices.Contains(got, text) {
			t.Errorf("caveats %q, want %q among them", got, text)
		}
	}

	why := lose(true).Missing[p50]
	if why != "no probe was answered" {
		t.Errorf("all lost: missing because %q", why)
	}
}

// A verifying trial that was repeated with success leaves no doubt.
func TestRepeatedVerify(t *testing.T) {
	for _, test := range []struct {
		name     string
		repeated bool
		want     int
	}{{"failed", false, 1}, {"failed, then repeated", true, 0}} {
		run, trials := quickRun(3)
		bad := trials[0]
		bad.Row.Kind, bad.Row.ID, bad.ID, bad.Row.Factors = record.RowVerify, "b0-v01", "b0-v01.1",
			run.Design.Path(quickFactors())
		bad.Status = record.TrialFailed
		bad.Failure = &record.Failure{
			Phase: record.PhaseVerify,
			Error: "no answer",
		}
		trials = append(trials, bad)
		if test.repeated {
			again := bad
			again.ID = "b0-v01.2"
			again.Attempt = 2
			again.Status = record.TrialOK
			again.Failure = nil
			trials = append(trials, again)
		}

		got := 0
		for _, c := range cellOf(t, Derive(run, trials), quickFactors()).Caveats {
			if c.Kind == "unverified" {
				got++
			}
		}

		if got != test.want {
			t.Errorf("%s: %d caveats, want %d", test.name, got, test.want)
		}
	}
}

// What a resumed run could do after all is not listed as skipped.
func TestSkippedAndThenMeasured(t *testing.T) {
	run, trials := quickRun(3)
	never := quickFactors("engine", "iperf3")
	run.Skipped = []record.Skipped{{Factors: quickFactors(), Reason: "no iperf3"},
		{Factors: never, Reason: "no iperf3"}}
	run.Design.Cells = append(run.Design.Cells, never)
	run.Design.Requirements = []record.Requirement{{
		Text:   "goodput >= 1",
		Metric: metrics.Goodput,
		Op:     ">=",
		Value:  1,
	}}
	d := Derive(run, trials)
	if len(d.Skipped) != 1 || d.Skipped[0].Factors.Key() != never.Key() {
		t.Errorf("skipped %v, want the one without a trial", d.Skipped)
	}

	if d.Cells[0].Factors.Key() != quickFactors().Key() {
		t.Errorf("the first cell is %v, want the design's", d.Cells[0].Factors)
	}

	missed := 0
	for _, r := range d.Thresholds {
		if !r.Met {
			missed++
		}
	}

	if missed != 1 {
		t.Errorf("%d requirements missed, want 1", missed)
	}
}
