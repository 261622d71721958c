package method

import (
	"fmt"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Result holds the result of a search for one goal (RFC 9971, "Goal Result"). Irregular is set if the goal
// was not met completely. Such a result must be shown as irregular.
type Result struct {
	Goal        string   `json:"goal"`
	Irregular   string   `json:"irregular,omitempty"` // reason why the result is irregular
	Lower       *float64 `json:"lower_bound,omitempty"`
	Upper       *float64 `json:"upper_bound,omitempty"`
	Throughput  *float64 `json:"conditional_throughput,omitempty"`
	LowerTrials int      `json:"lower_trials"` // number of trials at the lower bound
	UpperTrials int      `json:"upper_trials"`
}

// Outcome holds one result per goal, in the order of the goals.
type Outcome struct {
	Results []Result
	Trials  int           // number of trials, including warm-up trials
	Time    time.Duration // sum of the effective durations
}

// slack is the tolerance for rounded loads when a width is checked.
const slack = 1e-9

// Outcome evaluates trials, no matter how their loads were chosen.
func (c Config) Outcome(trials []Trial) Outcome {
	var o Outcome
	for _, t := range trials {
		o.Trials++
		o.Time += time.Duration(t.seconds() * 1e9)
	}

	points := Points(trials)
	for _, g := range c.Goals {
		r := c.result(g, points)
		if r.Irregular != "" && c.MaxTime > 0 && o.Time >= c.MaxTime {
			r.Irregular += "; the time of the search was up"
		}

		o.Results = append(o.Results, r)
	}

	return o
}

func (c Config) result(g record.Goal, points []Point) Result {
	r := Result{Goal: g.Name}
	lower, upper := bounds(g, points)
	if upper >= 0 {
		r.Upper = &points[upper].Load
		r.UpperTrials = len(points[upper].Trials)
	}

	if lower >= 0 {
		p := points[lower]
		r.Lower = &p.Load
		r.LowerTrials = len(p.Trials)
		if rate, ok := throughput(g, p.Load, p.Trials); ok {
			r.Throughput = &rate
		}
	}

	switch {
	case lower < 0 && upper < 0:
		r.Irregular = "no load was decided"
	case upper < 0 && points[lower].Load >= c.Max*(1-slack):
		r.Irregular = "the greatest load allowed is a lower bound: more may be possible"
	case upper < 0:
		r.Irregular = "no upper bound was found"
	case lower < 0 && points[upper].Load <= c.Min*(1+slack):
		r.Irregular = "the least load allowed is an upper bound"
	case lower < 0:
		r.Irregular = "no lower bound was found"
	case *r.Upper-*r.Lower > g.Width**r.Upper*(1+slack):
		r.Irregular = fmt.Sprintf("the bounds are further apart than the width of %g", g.Width)
	}

	return r
}
