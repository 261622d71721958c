package analysis

import (
	"math"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Where the tester has a machine of its own, too little headroom is doubt.
func TestTesterHeadroom(t *testing.T) {
	tcp := quickFactors()
	flows := quickFactors("engine", "flows", "flow_size", "10000")
	for _, test := range []struct {
		name, lab, grade string
		factors          record.Factors
		rate             float64
		flows            int64
	}{
		{"tcp", "ssh", evidence.GradeSuspect, tcp, 28e9, 0}, {"tcp", "ssh", evidence.GradeValid, tcp,
			20e9, 0},
		{"tcp", "local", evidence.GradeValid, tcp, 28e9, 0},
		{"flows", "ssh", evidence.GradeSuspect, flows, 1e6, 90_000}, {"flows", "ssh", evidence.GradeValid,
			flows, 1e6, 70_000},
		{"flows", "vm", evidence.GradeValid, flows, 1e6, 90_000},
	} {
		run := syntheticRun(test.factors)
		inLab(&run, test.lab)
		run.Ceilings = append(run.Ceilings, record.Ceiling{
			TrafficKind: record.TrafficKind{Engine: "flows", FlowSize: "10000", Streams: 1},
			Kind:        "flows loopback, size 10000, 1 stream",
			Value:       1e4,
			Unit:        "flows/s",
		})
		tr := newSynthetic(3).trial(test.factors, 1, 1, test.rate)
		if test.flows > 0 {
			tr.Traffic.ShortFlows = &record.ShortFlows{Started: test.flows, Completed: test.flows}
		}

		c := Derive(run, []record.Trial{tr}).Cells[0]
		if c.Grade != test.grade {
			t.Errorf("%s in lab %s at %g, %d flows in 10 s: grade %s (%v), want %s", test.name, test.lab,
				test.rate, test.flows, c.Grade, c.Reasons, test.grade)
		}

		want := float64(test.flows) / 1e5
		if test.flows > 0 && c.Ceiling.TesterRatio != want {
			t.Errorf("%s: %g of the tester's ceiling, want %g", test.name, c.Ceiling.TesterRatio, want)
		}
	}
}

// TestATunnelIsHeldAgainstItsControl: its share of what the tester can do is of the control cell with the
// same tunnel, not of plain TCP, which nothing encrypts.
func TestATunnelIsHeldAgainstItsControl(t *testing.T) {
	plain := quickFactors()
	tunnel := quickFactors("tunnel", "wireguard")
	control := quickFactors("tunnel", "wireguard", "topology", "direct")
	s := newSynthetic(4)
	trials := []record.Trial{s.trial(plain, 1, 1, 15e9), s.trial(tunnel, 1, 2, 1e9),
		s.trial(control, 1, 3, 2e9)}
	d := Derive(syntheticRun(plain, tunnel, control), trials)
	for i, want := range []float64{.5, .5, 0} {
		got := d.Cells[i].Ceiling
		if math.Abs(got.TesterRatio-want) > .01 ||
			(i == 1) != strings.HasPrefix(got.TesterKind, "control cell, ") {
			t.Errorf("%s: got %g of %q, want %g", d.Cells[i].Label, got.TesterRatio, got.TesterKind, want)
		}
	}

	d = Derive(syntheticRun(plain, tunnel), trials[:2])
	if got := d.Cells[1].Ceiling; got.TesterRatio != 0 || got.TesterKind != "" {
		t.Errorf("without a control: got %g of %q, want nothing", got.TesterRatio, got.TesterKind)
	}
}
