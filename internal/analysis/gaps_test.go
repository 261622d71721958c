package analysis

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Whatever a trial lacks, the document is made and can be written as JSON.
func TestDeriveSurvivesGaps(t *testing.T) {
	f := quickFactors("tunnel", "wireguard")
	nan := record.NewTable("bytes")
	nan.Append(0, math.NaN())
	nan.Append(1e9, math.NaN())
	tests := map[string]func(t *record.Trial){
		"no traffic":     func(t *record.Trial) { t.Traffic = nil },
		"no flows":       func(t *record.Trial) { t.Traffic.Flows = nil },
		"no series":      func(t *record.Trial) { t.Traffic.Flows[0].Received = nil },
		"series of NaN":  func(t *record.Trial) { t.Traffic.Flows[0].Received = nan },
		"empty series":   func(t *record.Trial) { t.Traffic.Flows[0].Received = record.NewTable("bytes") },
		"no window":      func(t *record.Trial) { t.Window = record.Window{} },
		"window inverse": func(t *record.Trial) { t.Window.Start, t.Window.End = t.Window.End, t.Window.Start },
		"no TCP":         func(t *record.Trial) { t.Traffic.Flows[0].TCP = nil },
		"no ends":        func(t *record.Trial) { t.Traffic.Ends = nil },
		"zero lengths":   func(t *record.Trial) { t.Traffic.Flows[0].ReceiverNs, t.Traffic.Flows[0].SenderNs = 0, 0 },
		"no probes":      func(t *record.Trial) { t.Loaded = &record.Latency{} },
		"all lost": func(t *record.Trial) {
			for i := range t.Loaded.RTT {
				t.Loaded.RTT[i] = -1
			}
		},
		"send times missing": func(t *record.Trial) { t.Loaded.SentAt = nil },
		"no nodes":           func(t *record.Trial) { t.Nodes = nil },
		"empty nodes":        func(t *record.Trial) { t.Nodes = map[string]record.NodeData{"host": {}, "router": {}} },
		"no path":            func(t *record.Trial) { t.Path = nil },
		"no factors":         func(t *record.Trial) { t.Row.Factors = nil },
		"odd factors": func(t *record.Trial) {
			t.Row.Factors = record.Factors{"mtu": "x", "tunnel": "wireguard", "link_mtu": "-1", "packet_size": "", "queue": "tbf rate"}
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
				if c.Grade == GradeValid && c.Metrics[goodput].N == 0 {
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
