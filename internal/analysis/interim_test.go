package analysis

import (
	"runtime"
	"testing"
	"weak"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// A campaign of any length keeps nothing of a stored trial but its rate, unless its plan searches.
func TestInterimKeepsOnlyTheRateOfATrial(t *testing.T) {
	x := NewInterim(&record.Run{})
	row := record.Row{Assignment: record.Assignment{
		Kind:    record.RowLoad,
		Factors: record.Factors{"streams": "1"},
	}}
	held := func() (parts [2]weak.Pointer[int64]) {
		rtt := make([]int64, 1000)
		traffic := &record.Traffic{Flows: []record.Flow{
			{ReceivedBytes: 1000, ReceiverNs: 1e9}}}
		parts = [2]weak.Pointer[int64]{weak.Make(&rtt[0]), weak.Make(&traffic.Flows[0].ReceivedBytes)}
		x.Add(&record.Trial{
			Row:     row,
			Status:  record.TrialOK,
			Traffic: traffic,
			Loaded:  &record.Latency{RTT: rtt},
		})
		return parts
	}()
	runtime.GC()
	for i, part := range held {
		if part.Value() != nil {
			t.Errorf("part %d of the trial is kept", i)
		}
	}

	if got, err := x.ShareOf(factor.Found{Of: row.Factors, Share: 1}); got != 8000 || err != nil {
		t.Errorf("got %v bit/s and %v, want the trial's 8000", got, err)
	}
}

// While a run goes on each trial of a load has a candidate of its own; others, and failed ones, have none.
func TestBriefNamesTheCauseOfOneTrial(t *testing.T) {
	run, trials := quickRun(1)
	for _, trial := range trials {
		load := trial.Row.Kind == record.RowLoad && trial.Status == record.TrialOK
		e := Brief(&run, trial)
		if (e.Rate > 0) != load {
			t.Errorf("%s %s: got %+v", trial.Row.Kind, trial.Status, e)
		}

		if e.Cause != "" && (!load || e.Confidence <= 0) {
			t.Errorf("%s %s: got %+v", trial.Row.Kind, trial.Status, e)
		}
	}

	failed := trials[len(trials)-1]
	failed.Status = record.TrialFailed
	failed.Failure = &record.Failure{Phase: "load", Error: "no route"}
	if e := Brief(&run, failed); e.Rate != 0 || e.Cause != "" {
		t.Errorf("a failed trial is shown as %+v", e)
	}
}
