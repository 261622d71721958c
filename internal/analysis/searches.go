package analysis

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/method"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/search"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/validity"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// readSearches evaluates the searches of all cells, and determines the trial that represents each search.
func readSearches(run *record.Run, cells []*group) {
	if run.Design.Method.Search == nil {
		return
	}

	for _, g := range cells {
		var rows [][]*validity.Graded // trials of each search, in the order of the run
		for _, j := range g.trials {
			if j.Trial.Search == nil {
				continue
			}

			i := slices.IndexFunc(rows, func(r []*validity.Graded) bool {
				return r[0].Trial.Row.ID == j.Trial.Row.ID
			})
			if i < 0 {
				i = len(rows)
				rows = append(rows, nil)
			}

			rows[i] = append(rows[i], j)
		}

		for _, row := range rows {
			r := reading{run: run, trials: row, idle: g.idleOf(row[0].Trial.Row.Block)}
			s, stands := r.search()
			g.search = append(g.search, s)
			if stands != nil {
				g.found = append(g.found, stands)
			}
		}
	}
}

// idleOf returns the latency of the idle path as measured in a block, or nil if it was not measured.
func (g *group) idleOf(block int) *record.Latency {
	var found *record.Latency
	for _, j := range validity.LastGood(g.idle) {
		if j.Trial.Idle != nil && j.Trial.Row.Block == block {
			found = j.Trial.Idle
		}
	}
	return found
}

// reading holds the trials of one search while the search is evaluated.
type reading struct {
	run     *record.Run
	trials  []*validity.Graded
	counted []*validity.Graded // successful trials of the search for the rate, without warm-up trials
	idle    *record.Latency
}

// search returns the result of the search, and the trial that represents the search.
func (r *reading) search() (*SearchView, *validity.Graded) {
	first := r.trials[0].Trial
	m := r.run.Design.Method
	s := &SearchView{
		SearchLimits: first.Search.SearchLimits,
		Row:          first.Row.ID,
		Block:        first.Row.Block,
		Factors:      first.Row.Factors,
		Results:      []SearchResult{},
		Steps:        []SearchStep{},
	}
	s.Interfaces = max(s.Interfaces, 1)
	var trials []*record.Trial
	var counted []method.Trial
	for _, j := range r.trials {
		trials = append(trials, j.Trial)
		if j.Grade == evidence.GradeFailed {
			s.Failed++
			continue
		}

		mt := search.SearchTrial(m, j.Trial, r.idle)
		step := SearchStep{
			Trial:     j.Trial.ID,
			Test:      j.Trial.Search.Test,
			Load:      j.Trial.Search.Load,
			Seconds:   j.Trial.Search.Duration.Seconds(),
			LossRatio: mt.Loss,
			Warmup:    mt.Warmup,
		}
		if mt.HasDelay {
			step.AddedNs = float64(mt.Delay)
		}

		s.Steps = append(s.Steps, step)
		if j.Trial.Search.Test == record.TestThroughput {
			counted = append(counted, mt)
			if !mt.Warmup {
				r.counted = append(r.counted, j)
			}

			s.Seconds = float64(j.Trial.Ended-j.Trial.Origin)/1e9 +
				j.Trial.Started.Sub(first.Started).Seconds()
		}
	}

	config := search.LimitsOf(m, first.Search)
	outcome := config.Outcome(counted)
	s.Trials = outcome.Trials
	s.EffectiveSeconds = outcome.Time.Seconds()
	payload := search.PayloadBits(first)
	for i, got := range outcome.Results {
		result := SearchResult{Result: got}
		if got.Throughput != nil && payload > 0 {
			result.ThroughputBps = new(*got.Throughput * (payload * float64(s.Interfaces)))
		}

		if got.Upper != nil {
			result.UnsentShare, result.Bursts = r.testersAt(*got.Upper, config.Goals[i].LossRatio)
		}

		s.Results = append(s.Results, result)
	}

	r.ending(s, config, trials)
	r.tests(s, outcome)
	stands := r.standsFor(s)
	if stands != nil {
		addSearch(stands.Metrics, s, m.Search.Goals)
	}

	return s, stands
}

// testersAt returns how much of the loss at a load was due to the tester. It considers the trials at this
// load whose loss exceeds ratio. share is the share of their missing frames that were never sent. bursts is
// the number of these trials in which the sender's bursts exceeded a policer's bucket.
func (r *reading) testersAt(load, ratio float64) (share float64, bursts int) {
	var unsent, lost int64
	for _, j := range r.counted {
		if j.Trial.Search.Load == load && search.SearchTrial(r.run.Design.Method, j.Trial, nil).Loss > ratio {
			sum, _ := search.PacketsOf(j.Trial.Traffic)
			unsent += sum.Unsent
			lost += sum.Lost
			if slices.ContainsFunc(j.Reasons, func(x evidence.Reason) bool {
				return len(x.Facts) > 0 && x.Facts[0].Element == validity.BucketElement
			}) {
				bursts++
			}
		}
	}
	return float64(unsent) / float64(max(unsent+lost, 1)), bursts
}

// ending determines whether the search has ended and, if it has not, why.
func (r *reading) ending(s *SearchView, c method.Config, trials []*record.Trial) {
	_, more, err := search.NextOfSearch(r.run.Design.Method, s.Unit, c.Max, s.Interfaces, trials, r.idle)
	switch {
	case err != nil:
		s.Why = err.Error()
	case more && s.Failed > 0:
		s.Why = strconv.Itoa(s.Failed) + " of its trials failed, and it was given up"
	case more:
		s.Why = "the run " + validity.StatusWords(r.run)
	default:
		s.Ended = true
	}

	for i := range s.Results {
		if !s.Ended && s.Results[i].Irregular != "" {
			s.Results[i].Irregular += "; the search did not end: " + s.Why
		}
	}
}

// standsFor returns the trial that represents a search: the last full-length trial at the lower bound of the
// first goal that has such a trial, otherwise the last trial at the lowest load.
func (r *reading) standsFor(s *SearchView) *validity.Graded {
	for i, goal := range r.run.Design.Method.Search.Goals {
		lower := s.Results[i].Lower
		for _, j := range slices.Backward(r.counted) {
			q := j.Trial.Search
			if lower != nil && q.Load == *lower && q.Duration >= goal.FinalDuration {
				return j
			}
		}
	}

	var least *validity.Graded
	for _, j := range r.counted {
		if least == nil || j.Trial.Search.Load <= least.Trial.Search.Load {
			least = j
		}
	}

	return least
}

// addSearch adds the results of a search to the metrics of the trial that represents it. Irregular results
// are left out.
func addSearch(m *metrics.Measured, s *SearchView, goals []record.Goal) {
	m.Set(metrics.SearchSeconds, s.Seconds)
	for i, g := range goals {
		name := metrics.ThroughputNDR
		switch {
		case s.Unit == record.UnitFlows && g.LossRatio > 0:
			name = metrics.ConnectionsPDR
		case s.Unit == record.UnitFlows:
			name = metrics.ConnectionsNDR
		case s.Unit == record.UnitBits:
			name = metrics.ThroughputPaced
		case g.MaxDelay > 0:
			name = metrics.ThroughputDelay
		case g.LossRatio > 0:
			name = metrics.ThroughputPDR
		}

		_, first := m.Values[name]
		if first {
			continue
		}

		got := s.Results[i]
		if got.Irregular != "" || got.Throughput == nil {
			m.Lack("goal "+g.Name+": "+got.Irregular, name)
			continue
		}

		m.Set(name, *got.Throughput)
	}
}

// doubt adds a reason for doubt to a cell. A valid cell becomes suspect.
func (g *group) doubt(r evidence.Reason) {
	g.cell.Reasons = append(g.cell.Reasons, r)
	if g.cell.Grade == evidence.GradeValid {
		g.cell.Grade = evidence.GradeSuspect
	}
}

func (g *group) caveat(kind, text string) {
	g.cell.Caveats = append(g.cell.Caveats, record.Caveat{Kind: kind, Text: text})
}

// addIrregular adds caveats about searches without a regular result. It also adds a caveat that states at
// which rate the other numbers of the cell were measured.
func (g *group) addIrregular() {
	if len(g.search) == 0 {
		return
	}

	if len(g.found) > 0 {
		g.caveat("at-the-bound", "the rate, latency and CPU figures are those of one trial of each "+
			"search, at the lower bound that it found, or at the least load where it found none")
	}

	for _, s := range g.search {
		for _, r := range s.Results {
			limited := func(format string, args ...any) {
				text := fmt.Sprintf("row %s, goal %s: ", s.Row, r.Goal) + fmt.Sprintf(format, args...)
				g.doubt(evidence.Reason{Kind: evidence.ReasonTesterLimited, Text: text})
			}
			if r.UnsentShare > 0.5 {
				limited("%s of the frames missing at the upper bound were never sent: this is what the "+
					"tester can do, the path may do more", unit.Percent(r.UnsentShare))
			}

			if r.Bursts > 0 {
				limited("in %d of the trials at the upper bound that lost too much the sender came late and "+
					"sent more at once than the policer's bucket holds: it may let more through that comes "+
					"evenly", r.Bursts)
			}

			if r.Irregular != "" {
				g.caveat("irregular-search", "goal "+r.Goal+" has no regular result in row "+s.Row+": "+
					r.Irregular)
			}
		}
	}
}

// addSearches adds the searches to the document, with the labels of their cells.
func (d *Document) addSearches(run *record.Run, cells []*group) {
	s := run.Design.Method.Search
	if s == nil {
		return
	}

	for _, g := range cells {
		for _, one := range g.search {
			one.Label = g.cell.Label
			d.Searches = append(d.Searches, *one)
		}
	}

	d.Searching = &Searching{
		Preset:     s.Preset,
		Goals:      s.Goals,
		Notes:      searchNotes(run),
		Deviations: deviations(run),
	}
}
