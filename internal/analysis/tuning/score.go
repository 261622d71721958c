package tuning

import (
	"fmt"
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/validity"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Budget limits how much a change may worsen other metrics.
type Budget struct {
	AddedDelayNs float64 `json:"added_delay_ns"` // p99 of the delay that a load adds
	LossRatio    float64 `json:"loss_ratio"`     // of packets, or of probes during a TCP load
}

// Smallest gains that count. A delay must improve by more than relevantDelay and by more than
// relevantDelayNs, because small delays vary a lot.
const (
	relevantRate    = statistics.SmallestRelevant
	relevantDelay   = .1
	relevantDelayNs = 1e6
	significance    = .05
	// harmedRate is the ratio of rates below which a change is harmful. If the whole interval of a rate is
	// below it, the change is harmful no matter what else improves.
	harmedRate = 1 - relevantRate
)

// Verdicts about a set of changes.
const (
	Helps      = "helps"
	Harms      = "harms"
	NoMatter   = "no difference that matters"
	CannotTell = statistics.CannotTell
	Unsafe     = "beyond the safety budget"
	Impossible = "cannot be made here"
)

// Arm is one of the sets of changes that a round compares, with the cells of the plan after these changes. If
// the changes are not possible in the lab or the plan, Cells is nil and Why holds the reason.
type Arm struct {
	Set   Set
	Cells []factor.Cell
	Why   string
}

// Effect compares one metric of one cell with and without a set of changes.
type Effect struct {
	Cell   string  `json:"cell"` // label of the cell
	Before float64 `json:"before"`
	After  float64 `json:"after"`
	comparison.Comparison
}

// Scored holds the effects of a set of changes compared with another set.
type Scored struct {
	Round   string   `json:"round,omitempty"` // title of the round
	Set     Set      `json:"changes"`
	Against Set      `json:"against"`
	Verdict string   `json:"verdict"`
	Why     string   `json:"why,omitempty"`
	Effects []Effect `json:"effects,omitempty"`
	// Gain is the geometric mean of the ratios of the cells' rates. It is 0 if no rate could be compared.
	Gain float64 `json:"gain,omitempty"`
}

// delays lists the metrics of probes during a load, highest percentile first.
var delays = [...]string{metrics.RTTLoadedP99, "rtt_loaded_p90_ns", metrics.RTTLoaded}

// measured maps the key of a cell's factors to the cell in a document.
type measured map[string]*analysis.Cell

// by returns the values that a metric has in a cell, by block.
func (m measured) by(cell factor.Cell, metric string) map[int]float64 {
	c := m[cell.Key()]
	if c != nil {
		return c.Blocks[metric]
	}
	return nil
}

func (m measured) median(cell factor.Cell, metric string) (float64, bool) {
	values := statistics.ByBlock(m.by(cell, metric))
	if len(values) == 0 {
		return 0, false
	}
	return statistics.Median(values), true
}

// failure describes why a row of a cell failed and was not repeated successfully. It returns "" if there is
// no such row.
func (m measured) failure(cell factor.Cell) string {
	c := m[cell.Key()]
	if c == nil || c.Failed == 0 {
		return ""
	}

	for _, r := range c.Reasons {
		if r.Kind == evidence.ReasonFailedTrials {
			return r.Text
		}
	}

	return ""
}

// label returns the label of a cell.
func (m measured) label(cell factor.Cell) string {
	c := m[cell.Key()]
	if c != nil {
		return c.Label
	}
	return cell.Key()
}

// goals returns the metrics on which two cells are compared: the rate, and the highest percentile of the
// delay under load that both cells have.
func (m measured) goals(a, b factor.Cell) []string {
	out := []string{validity.TesterMetric(a)}
	for _, d := range delays {
		_, before := m.median(a, d)
		_, after := m.median(b, d)
		if before && after {
			return append(out, d)
		}
	}
	return out
}

// unsafe explains why a cell exceeds the budget, or returns "" if it does not. A value may exceed the budget
// if it is not larger than the value of the reference cell. A cell in which a trial failed exceeds the
// budget, unless a trial of the reference cell failed, too.
func (m measured) unsafe(cell, against factor.Cell, idle float64, b Budget) string {
	why := m.failure(cell)
	if why != "" && m.failure(against) == "" {
		return "a trial " + why
	}

	for _, loss := range []string{metrics.LossRatio, metrics.ProbeLoss} {
		if loss == metrics.LossRatio && factor.Rate.Is(cell, factor.Flat) {
			continue // a load at full rate always loses the packets that the path cannot carry
		}

		was, _ := m.median(against, loss)
		if is, ok := m.median(cell, loss); ok && is > b.LossRatio && is > was {
			return fmt.Sprintf("loss of %s, above %s", unit.Percent(is), unit.Percent(b.LossRatio))
		}
	}

	for _, d := range delays {
		is, ok := m.median(cell, d)
		if !ok {
			continue
		}

		was, _ := m.median(against, d)
		added := is - idle
		if added > b.AddedDelayNs && is > was {
			return fmt.Sprintf("%s of added delay, above %s", unit.Nanoseconds(added),
				unit.Nanoseconds(b.AddedDelayNs))
		}

		break
	}

	return ""
}

// Pair identifies a set of changes and its reference set, by their indexes in a round.
type Pair struct{ Arm, Against int }

// Score evaluates the changes of each pair. All comparisons of a round form one family of tests. idle
// contains the round-trip time of each cell's idle path before any change, in ns.
func Score(d *analysis.Document, arms []Arm, pairs []Pair, idle []float64, b Budget) []Scored {
	m := measured(d.ByKey())
	out := make([]Scored, len(pairs))
	var family []map[int]float64
	var tested [][2]int // indexes of pairs and of their effects
	for i, p := range pairs {
		arm := arms[p.Arm]
		base := arms[p.Against]
		out[i] = Scored{Set: arm.Set, Against: base.Set, Verdict: Impossible, Why: arm.Why}
		if arm.Cells == nil || base.Cells == nil {
			continue
		}

		out[i].Verdict = ""
		for k, cell := range arm.Cells {
			why := m.unsafe(cell, base.Cells[k], idle[k], b)
			if why != "" {
				out[i].Verdict = Unsafe
				out[i].Why = why
			}

			for _, metric := range m.goals(base.Cells[k], cell) {
				before := m.by(base.Cells[k], metric)
				after := m.by(cell, metric)
				c, logs := comparison.ComparePaired(metric, before, after)
				if c.N == 0 {
					continue
				}

				c.Factors = cell
				c.Against = base.Cells[k]
				e := Effect{
					Cell:       m.label(base.Cells[k]),
					Comparison: c,
					Before:     statistics.Median(statistics.ByBlock(before)),
					After:      statistics.Median(statistics.ByBlock(after)),
				}
				if c.N >= statistics.MinInterval {
					family = append(family, logs)
					tested = append(tested, [2]int{i, len(out[i].Effects)})
				}

				out[i].Effects = append(out[i].Effects, e)
			}
		}
	}

	p, test := statistics.FamilyTest(family)
	for i, at := range tested {
		e := &out[at[0]].Effects[at[1]]
		e.PValue = p[i]
		e.Test = test
	}

	for i := range out {
		out[i].conclude()
	}

	return out
}

// conclude sets the verdicts about the effects, and the verdict about the set of changes.
func (j *Scored) conclude() {
	var logs []float64
	count := map[string]int{}
	for i := range j.Effects {
		e := &j.Effects[i]
		e.Verdict = e.score()
		count[e.Verdict]++
		if !slices.Contains(delays[:], e.Metric) && !e.Difference && e.Ratio > 0 {
			logs = append(logs, math.Log(e.Ratio))
		}
	}

	if len(logs) > 0 {
		j.Gain = math.Exp(statistics.Total(logs) / float64(len(logs)))
	}

	switch {
	case j.Verdict != "":
	case len(j.Effects) == 0:
		j.Verdict = CannotTell
		j.Why = "no block has both"
	case count[Harms] > 0:
		j.Verdict = Harms
	case count[Helps] > 0:
		j.Verdict = Helps
	case count[CannotTell] > 0:
		j.Verdict = CannotTell
	default:
		j.Verdict = NoMatter
	}
}

// score returns the verdict about one effect. A delay that grew but does not exceed the budget does not count
// as harm.
func (e *Effect) score() string {
	sure := e.N >= statistics.MinInterval && e.PValue <= significance
	if slices.Contains(delays[:], e.Metric) {
		if sure && e.High < 1-relevantDelay && e.Before-e.After > relevantDelayNs {
			return Helps
		}
		return NoMatter
	}

	switch {
	case e.N < statistics.MinInterval:
		return CannotTell
	case e.Difference:
		if sure && e.Low > 0 {
			return Helps // the rate was zero before
		}
		return NoMatter
	case e.High < harmedRate:
		return Harms
	case sure && e.Low > 1+relevantRate:
		return Helps
	case e.Low > harmedRate && e.High <= 1+relevantRate:
		return NoMatter
	}

	return CannotTell
}
