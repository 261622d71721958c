package trial_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

const sharesPlan = "name: x\nmethod: {runs: 2, seed: 1}\nmatrix: {protocol: udp, packet_size: 200, rate: " +
	"[flat, 10% of found, 90% of found]}\n" +
	"measure: {latency_idle: \"off\", latency_loaded: false, verify: false}\n"

// TestSharesOfWhatWasFound: the load of a share is that part of what its cell carried flat out, in the same
// campaign.
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

	if got := r.Campaign.Kinds(); len(got) != 1 || got[0].String() != "udp, 200-byte packets" {
		t.Errorf("kinds of traffic of the campaign: got %+v, want that of its three cells", got)
	}

	for rate, share := range map[string]float64{"10% of found": .1, "90% of found": .9} {
		got := asked[rate]
		if math.Abs(got/(share*flat)-1) > 1e-6 {
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
		_, share := factor.FoundOf(x.Row.Factors)
		if x.Status != record.TrialFailed || share && (x.Failure.Phase != record.PhaseSetup ||
			!strings.Contains(x.Failure.Error, "rate=flat") || x.Failure.Hint == "") {
			t.Errorf("%s: %s, %+v; want it failed, for want of a rate", x.Row.Factors["rate"], x.Status,
				x.Failure)
		}
	}

	d := analysis.Derive(r.Campaign.Run, r.Trials)
	for _, c := range d.Cells {
		if c.Grade != evidence.GradeFailed {
			t.Errorf("cell %s is %s, want it failed", c.Label, c.Grade)
		}
	}
}

// TestSharesOfASearch: in a plan with a search a share is one fixed load at that part of the no-loss rate,
// with its own length, and repeated with each block; what the search found is the median of those before.
func TestSharesOfASearch(t *testing.T) {
	t.Parallel()
	r := searchRig(t, "", "runs: 1", "runs: 2", "size: 500",
		"size: 500, rate: [flat, 10% of found, 90% of found]")
	execute(t, r)
	d := analysis.Derive(r.Campaign.Run, r.Trials)
	if len(d.Searches) != 2 || len(d.Cells) != 3 {
		t.Fatalf("%d searches of %d cells, want 2 of 3", len(d.Searches), len(d.Cells))
	}

	found := []float64{*d.Searches[0].Results[0].ThroughputBps, 0}
	found[1] = (found[0] + *d.Searches[1].Results[0].ThroughputBps) / 2
	fixed := 0
	for _, x := range r.Trials {
		share, ok := factor.FoundOf(x.Row.Factors)
		if !ok || x.Row.Kind != record.RowLoad {
			continue
		}

		fixed++
		if x.Status != record.TrialOK || x.Search != nil {
			t.Fatalf("trial %s: %s, search %+v, %v; want a fixed load", x.ID, x.Status, x.Search, x.Failure)
		}

		if got, want := x.Traffic.Load.RateBps,
			share.Share*found[x.Row.Block-1]; math.Abs(got/want-1) > 1e-9 {
			t.Errorf("trial %s: asked for %.0f bit/s, want %.0f, %g of what was found", x.ID, got, want,
				share.Share)
		}

		if got, want := x.Traffic.Load.Duration, r.Plan.Design.Method.Duration; got != want {
			t.Errorf("trial %s: %s long, want %s", x.ID, got, want)
		}
	}

	if !slices.ContainsFunc(d.Searching.Notes, func(n string) bool {
		return strings.Contains(n,
			"is not searched")
	}) {
		t.Errorf("notes %v, want one on shares", d.Searching.Notes)
	}

	if fixed != 4 {
		t.Errorf("%d fixed loads, want 4", fixed)
	}

	for _, c := range d.Cells[1:] {
		ndr, has := c.Metrics["throughput_ndr_pps"]
		if c.Runs != 2 || c.Metrics["rtt_loaded_p50_ns"].N != 2 || has {
			t.Errorf("cell %s: %d runs, latency under load %+v, search %+v; want two of each, and none of "+
				"a search", c.Label, c.Runs, c.Metrics["rtt_loaded_p50_ns"], ndr)
		}
	}
}

// TestSearchThatFoundNothing: shares of a search without a lower bound fail, and say so.
func TestSearchThatFoundNothing(t *testing.T) {
	r := searchRig(t, "", "size: 500", "size: 500, rate: [flat, 50% of found]")
	r.Labs.Engine.Lose = func(record.Load) float64 { return .5 }
	execute(t, r)
	last := r.Trials[len(r.Trials)-1]
	if last.Status != record.TrialFailed || !strings.Contains(last.Failure.Error, "no search of") ||
		!strings.Contains(last.Failure.Hint, "search.min") {
		t.Errorf("%s: %s, %+v; want it failed, for want of a rate", last.ID, last.Status, last.Failure)
	}
}
