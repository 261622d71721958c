package trial_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

const sharesPlan = "name: x\nmethod: {runs: 2, seed: 1}\nmatrix: {protocol: udp, packet_size: 200, rate: [flat, 10% of found, 90% of found]}\n" +
	"measure: {latency_idle: \"off\", latency_loaded: false, verify: false}\n"

// TestSharesOfWhatWasFound: the load of a share is that part of what its cell
// carried flat out, in the same campaign.
func TestSharesOfWhatWasFound(t *testing.T) {
	r := rig(t, sharesPlan)
	var flat float64
	r.Labs.Engine.Rate = func(load record.Load) float64 {
		if load.RateBps > 0 {
			return load.RateBps
		}
		return 40e6
	}
	execute(t, r)
	asked := map[string]float64{}
	for _, x := range r.Trials {
		if x.Status != record.TrialOK {
			t.Fatalf("trial %s: %v", x.ID, x.Failure)
		}
		if x.Row.Factors["rate"] == "flat" {
			f := x.Traffic.Flows[0]
			flat = 8e9 * float64(f.ReceivedBytes) / float64(f.ReceiverNs)
		}
		asked[x.Row.Factors["rate"]] = x.Traffic.Load.RateBps
	}
	if got := r.Campaign.Kinds(); len(got) != 1 || got[0].String() != "udp loopback, 200-byte packets" {
		t.Errorf("kinds of traffic of the campaign: got %+v, want that of its three cells", got)
	}
	for rate, share := range map[string]float64{"10% of found": .1, "90% of found": .9} {
		if got := asked[rate]; math.Abs(got/(share*flat)-1) > 1e-6 {
			t.Errorf("%s: asked for %.0f bit/s, want %.0f of what was found, %.0f", rate, got, share, flat)
		}
	}
}

// TestNothingFound: without a rate the shares fail, and say of what.
func TestNothingFound(t *testing.T) {
	r := rig(t, sharesPlan)
	r.Labs.Engine.Fail = func(_ context.Context, load record.Load) error {
		if load.RateBps == 0 {
			return errors.New("no cable")
		}
		return nil
	}
	execute(t, r)
	for _, x := range r.Trials {
		_, share := plan.FoundOf(x.Row.Factors)
		if x.Status != record.TrialFailed || share && (x.Failure.Phase != record.PhaseSetup || !strings.Contains(x.Failure.Error, "rate=flat") || x.Failure.Hint == "") {
			t.Errorf("%s: %s, %+v; want it failed, for want of a rate", x.Row.Factors["rate"], x.Status, x.Failure)
		}
	}
	d := analysis.Derive(r.Campaign.Run, r.Trials)
	for _, c := range d.Cells {
		if c.Grade != analysis.GradeFailed {
			t.Errorf("cell %s is %s, want it failed", c.Label, c.Grade)
		}
	}
}
