package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// VerifyLength is the length of the load of a verification row.
const VerifyLength = 500 * time.Millisecond

// Estimate is how long all rows take, with overhead for setting up, draining
// and collecting each. With adaptive stopping it is the longest time.
func (p *Plan) Estimate(overhead time.Duration) time.Duration {
	return p.EstimateRuns(p.Design.Method.Runs, overhead)
}

// EstimateRuns is Estimate for a given number of blocks.
func (p *Plan) EstimateRuns(runs int, overhead time.Duration) time.Duration {
	cells := len(p.Design.Cells)
	return p.estimate(cells, p.pathsOfFirst()[cells], runs, overhead)
}

// pathsOfFirst gives, for each n, how many different paths the first n cells
// have.
func (p *Plan) pathsOfFirst() []int {
	seen := map[string]bool{}
	counts := []int{0}
	for _, c := range p.Design.Cells {
		seen[c.Path().Key()] = true
		counts = append(counts, len(seen))
	}
	return counts
}

func (p *Plan) estimate(cells, paths, runs int, overhead time.Duration) time.Duration {
	m, w := p.Design.Method, p.Design.Measure
	load := m.Warmup + m.Duration + m.Cooldown + overhead
	if m.Search != nil {
		load = estimateSearch(m, overhead)
	}
	if w.LatencyIdle == IdleTrial {
		load += m.Idle
	}
	block := time.Duration(cells) * load
	if w.LatencyIdle == IdleBlock {
		block += time.Duration(paths) * (m.Idle + overhead)
	}
	total := time.Duration(runs) * block
	if w.Verify {
		total += time.Duration(paths) * (VerifyLength + overhead)
	}
	return total
}

// MinRuns is how far Fit cuts repetitions: to adaptive.min, or to six, the
// fewest that give a 95 % interval. A plan that has fewer keeps them all.
func (p *Plan) MinRuns() int {
	if a := p.Design.Method.Adaptive; a != nil {
		return a.Min
	}
	return min(p.Design.Method.Runs, 6)
}

// Fit cuts the plan until it is estimated to take no longer than the budget:
// first repetitions, down to MinRuns, which the design's Cuts say in words,
// then the cells listed last, which become skipped ones. Nothing is changed
// if not even one cell fits.
func (p *Plan) Fit(budget, overhead time.Duration) error {
	m := &p.Design.Method
	cells, runs, paths := len(p.Design.Cells), m.Runs, p.pathsOfFirst()
	for runs > p.MinRuns() && p.estimate(cells, paths[cells], runs, overhead) > budget {
		runs--
	}
	for cells > 1 && p.estimate(cells, paths[cells], runs, overhead) > budget {
		cells--
	}
	if need := p.estimate(cells, paths[cells], runs, overhead); need > budget {
		return &Error{
			Text: fmt.Sprintf("one cell with %s takes %s and does not fit into %s",
				plural(runs, "repetition"), unit.Seconds(need), unit.Seconds(budget)),
			HintText: "give a longer --budget, or a shorter method.duration",
		}
	}
	d := &p.Design
	if runs < m.Runs {
		d.Cuts = append(slices.Clone(d.Cuts), fmt.Sprintf("%s instead of %d", plural(runs, "repetition"), m.Runs))
		p.cutRuns(runs)
	}
	d.Skipped = slices.Clone(d.Skipped)
	for _, c := range d.Cells[cells:] {
		d.Skipped = append(d.Skipped, record.Skipped{Factors: c, Reason: "cut by --budget"})
	}
	d.Cells = d.Cells[:cells:cells]
	return nil
}

func (p *Plan) cutRuns(runs int) {
	m := &p.Design.Method
	m.Runs = runs
	if m.Adaptive != nil {
		a := *m.Adaptive
		a.Max = runs
		m.Adaptive = &a
	}
}
