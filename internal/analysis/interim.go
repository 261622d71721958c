package analysis

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/search"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/validity"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Brief returns the numbers and the cause of one finished trial, for the live view.
func Brief(run *record.Run, t record.Trial) (e record.Event) {
	j := validity.GradeTrial(run, &t)
	if t.Status == record.TrialOK {
		e.Rate = j.Metrics.Values[metrics.Goodput]
		e.PPS = j.Metrics.Values[metrics.PacketRate]
		if t.Row.Kind == record.RowIdle {
			e.RTT = int64(statistics.MedianSorted(j.Metrics.RTTs["idle"]))
		}

		c := t.Cipher
		if c != nil && c.Block > 0 {
			e.Rate = 8 * c.Rate
		}
	}

	d := candidate(run, j)
	if d != nil && d.Named() {
		e.Cause = d.Text
		e.Confidence = d.Confidence
	}

	return e
}

// Interim holds the finished trials of a running campaign. The campaign uses them to decide what to measure
// next.
type Interim struct {
	run    *record.Run
	trials []record.Trial       // without their series; nil for a plan without searches
	rates  map[string][]float64 // cell → rates of its successful trials
}

// NewInterim returns an Interim without trials.
func NewInterim(run *record.Run) *Interim {
	return &Interim{run: run, rates: map[string][]float64{}}
}

// Add adds a finished trial.
func (x *Interim) Add(t *record.Trial) {
	if x.run.Design.Method.Search != nil {
		x.trials = append(x.trials, t.Light())
	}

	cell := t.Row.Cell()
	switch {
	case t.Status != record.TrialOK:
	case t.Cipher != nil:
		x.rates[cell] = append(x.rates[cell], t.Cipher.Rate)
	case t.Row.Kind == record.RowLoad && t.Traffic != nil:
		up, down, _ := t.Traffic.Goodput() // zero if nothing was counted
		x.rates[cell] = append(x.rates[cell], up+down)
	}
}

// Narrow reports whether the interval of a cell's rate is as narrow as the design requires.
func (x *Interim) Narrow(cell string) bool {
	a := x.run.Design.Method.Adaptive
	return a != nil && statistics.Narrow(x.rates[cell], a.Width, a.Min)
}

// Next returns the next trial of a row's search. more is false if the search has ended.
func (x *Interim) Next(row record.Row) (next record.SearchTrial, more bool, err error) {
	interfaces := 1
	unit := record.SearchUnit(row.Factors)
	if factor.Direction.Is(row.Factors, factor.Both) && unit != record.UnitFlows {
		interfaces = 2
	}

	return search.NextOfSearch(x.run.Design.Method, unit, validity.TesterRate(x.run, row.Factors), interfaces,
		x.searchOf(row), x.idleOf(row))
}

// searchOf returns the trials in the search of a row.
func (x *Interim) searchOf(row record.Row) []*record.Trial {
	var trials []*record.Trial
	for i := range x.trials {
		t := &x.trials[i]
		if t.Row.ID == row.ID && t.Search != nil {
			trials = append(trials, t)
		}
	}
	return trials
}

// idleOf returns the latency of the idle path as measured in the block of a row, or nil if it was not
// measured there.
func (x *Interim) idleOf(row record.Row) *record.Latency {
	path := x.run.Design.Path(row.Factors).Key()
	var found *record.Latency
	for _, t := range x.trials {
		if t.Row.Kind == record.RowIdle && t.Row.Block == row.Block && t.Status == record.TrialOK &&
			x.run.Design.Path(t.Row.Factors).Key() == path {
			found = t.Idle
		}
	}

	return found
}

// ShareOf returns the load, in payload bits per second, of a cell whose rate is set to a share of another
// cell's rate. The other cell's rate is the median result of its searches or, if it has no search, its median
// goodput. In the latter case, the load is below the capacity of the path only if the generator was at least
// as fast as the path.
func (x *Interim) ShareOf(found factor.Found) (float64, error) {
	of := found.Of.Key()
	var rates []float64
	rows := map[string]bool{} // rows whose search has been counted
	for _, t := range x.trials {
		if t.Search == nil || t.Status != record.TrialOK || t.Row.Cell() != of || rows[t.Row.ID] {
			continue
		}

		rows[t.Row.ID] = true
		if bps, ok := search.FoundRate(x.run.Design.Method, x.searchOf(t.Row), x.idleOf(t.Row)); ok {
			rates = append(rates, bps)
		}
	}

	if len(rows) == 0 {
		for _, bps := range x.rates[of] {
			if bps > 0 {
				rates = append(rates, bps)
			}
		}
	}

	switch {
	case len(rates) > 0:
		return found.Share * statistics.Median(rates), nil
	case len(rows) > 0:
		return 0, check.WithHint(fmt.Errorf("no rate was found: no search of %s has a lower bound so far",
			of), "set method.search.min and method.search.max")
	}

	return 0, check.WithHint(fmt.Errorf("no rate was found: no trial of %s has ended well so far", of),
		"the failed trials of that cell say why")
}

// candidate returns the diagnosis of a single trial for the live view, or nil if it has none.
func candidate(run *record.Run, j *validity.Graded) *diagnosis.Diagnosis {
	if !diagnosable(j) && !failedOnPath(j) {
		return nil
	}

	d := diagnosis.Conclude([][]diagnosis.Candidate{diagnosis.Examine(Observe(run, j))})
	if !diagnosable(j) && d.Class == diagnosis.Unknown {
		return nil
	}

	return d
}
