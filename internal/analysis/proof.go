package analysis

import (
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/validity"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// proofOf returns what an experiment shows about its cause, or nil if the run is not an experiment.
func proofOf(run *record.Run, cells []*group) *diagnosis.Proof {
	e := run.Design.Experiment
	if e == nil {
		return nil
	}

	metric := answers(cells, e.Class)
	rates := diagnosis.Steps{Untouched: map[int][]float64{}, Of: map[string]map[int]float64{}}
	var untouched record.Factors
	for _, g := range cells {
		byBlock := g.cell.Blocks[metric]
		if e.Untouched(g.factors) {
			untouched = g.factors
			for _, j := range g.trials { // the rate counts as 0 if the path passed no packets
				f := j.Trial.Failure
				if f != nil && slices.Contains(ofTraffic, f.Phase) {
					rates.Untouched[j.Trial.Row.Block] = append(rates.Untouched[j.Trial.Row.Block], 0)
				}
			}

			for block, v := range byBlock {
				rates.Untouched[block] = append(rates.Untouched[block], v)
			}
		} else {
			rates.Of[g.factors[e.Factor]] = byBlock
		}
	}

	p := diagnosis.Prove(*e, metric, rates)
	p.By = run.ID
	p.Cell = factor.Copy.With(untouched, "")
	return p
}

// answers returns the metric that shows the response to the steps of an experiment: a round-trip time for a
// class about delay, and goodput otherwise.
func answers(cells []*group, class string) string {
	rule, _ := diagnosis.RuleOf(class)
	if !rule.Has("delay") {
		return metrics.Goodput
	}

	for _, g := range cells {
		for _, j := range g.good() {
			if _, ok := j.Metrics.Values[metrics.RTTTCP]; ok {
				return metrics.RTTTCP
			}
		}
	}

	return metrics.RTTLoaded
}

// ofTraffic lists the phases of a trial in which packets must get through the path.
var ofTraffic = []string{record.PhaseVerify, record.PhaseWarmup, record.PhaseWindow}

// TestsOf returns the experiments that test a class in the cell of a trial, whether or not the class was
// diagnosed. It returns none for a trial without a measured load.
func TestsOf(run *record.Run, t record.Trial, class string) []diagnosis.Experiment {
	j := validity.GradeTrial(run, &t)
	if !diagnosable(j) {
		return nil
	}
	return diagnosis.Tests(Observe(run, j), class)
}

// AddProofs adds the results of experiments to the causes that they test.
func (d *Document) AddProofs(proofs []diagnosis.Proof) {
	for _, p := range proofs {
		c := d.causeOf(p.Cell, p.Class)
		if c == nil {
			d.Proofs = append(d.Proofs, p)
			continue
		}

		c.Proofs = append(c.Proofs, p)
		c.Proved = diagnosis.Decide(c.Proofs)
	}

	for i := range d.Cells {
		d.Cells[i].predict()
	}
}

// causeOf returns the cause of a class in a cell, or nil if the cell's diagnosis does not list it.
func (d *Document) causeOf(cell record.Factors, class string) *diagnosis.Cause {
	c := d.ByKey()[cell.Key()]
	if c == nil || c.Diagnosis == nil {
		return nil
	}

	for i := range c.Diagnosis.Causes {
		if c.Diagnosis.Causes[i].Class == class {
			return &c.Diagnosis.Causes[i]
		}
	}

	return nil
}

// minUtilisation is the lowest utilisation from which a gain is predicted. At a lower utilisation, the cost
// of a packet differs from that at the limit, because GSO and GRO form packets of other sizes.
const minUtilisation = .3

// predict sets the prediction of each measured gain. This is the lowest of the upper bounds that were known
// before the gain was measured: the gain that the diagnosis allows, the slack that experiments found in other
// resources, the tester's rate, and the utilisation of the other parts of the path. The utilisation is a
// bound only if removing the limit does not change the CPU time per packet.
func (c *Cell) predict() {
	if c.Diagnosis == nil {
		return
	}

	causes := c.Diagnosis.Causes
	// Other load may saturate a core, so the core's utilisation does not depend on the traffic alone.
	busy := slices.ContainsFunc(causes, func(x diagnosis.Cause) bool {
		return x.Class == diagnosis.OtherLoad
	})
	for i := range causes {
		rule, _ := diagnosis.RuleOf(causes[i].Class)
		for k := range causes[i].Proofs {
			p := &causes[i].Proofs[k]
			if p.Gain == nil {
				continue
			}

			if p.Headroom > 0 { // a measurement is better than any bound
				p.Predict(p.Headroom, "the next limit, met when "+p.Factor+" was raised")
				continue
			}

			if p.Raised() { // the rate followed the resource, so the next limit is farther away
				continue
			}

			if rule.Kind == diagnosis.ByPacket { // for other classes, the only bound is the tester's rate
				p.Predict(causes[i].GainAtMost, "the finding")
			}

			for _, other := range causes {
				for _, q := range other.Proofs {
					if q.Verdict == diagnosis.Refuted && q.Knee > 0 {
						p.Predict(1/q.Knee, "the slack of "+q.Factor+", "+unit.Percent(1-q.Knee))
					}
				}
			}

			for _, s := range c.Diagnosis.Path {
				if busy || rule.Has("wasteful") {
					break
				}

				if s.Choke || s.Utilisation == nil || *s.Utilisation < minUtilisation || !s.Spent() ||
					s.Link() && rule.Kind == diagnosis.ByRate {
					continue
				}

				p.Predict(1/min(*s.Utilisation, 1), strings.TrimSpace(s.Node+" "+s.Label)+" used to "+
					unit.Percent(*s.Utilisation))
			}

			r := c.Ceiling.TesterRatio
			if r >= minUtilisation && r < 1 {
				p.Predict(1/r, "what the tester reaches alone")
			}
		}
	}
}
