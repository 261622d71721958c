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

// Estimate is how long all rows take, with overhead for setting up, draining and collecting each. With
// adaptive stopping it is the longest time.
func (p *Plan) Estimate(overhead time.Duration) time.Duration {
	parts := p.parts()
	return p.estimate(parts[len(parts)-1], p.Design.Method.Runs, overhead)
}

// part is what the first cells of a plan are.
type part struct{ cells, searches, paths int }

// parts gives, for each n, what the first n cells are.
func (p *Plan) parts() []part {
	seen := map[string]bool{}
	parts := []part{{}}
	searches := 0
	for i, c := range p.Design.Cells {
		seen[p.Design.Path(c).Key()] = true
		if p.Design.Searches(record.Row{Kind: record.RowLoad, Factors: c}) {
			searches++
		}
		parts = append(parts, part{i + 1, searches, len(seen)})
	}
	return parts
}

func (p *Plan) estimate(of part, runs int, overhead time.Duration) time.Duration {
	m, w := p.Design.Method, p.Design.Measure
	block := time.Duration(of.cells-of.searches) * (m.Warmup + m.Duration + m.Cooldown + overhead)
	if of.searches > 0 {
		block += time.Duration(of.searches) * estimateSearch(m, overhead)
	}
	switch w.LatencyIdle {
	case IdleTrial:
		block += time.Duration(of.cells) * m.Idle
	case IdleBlock:
		block += time.Duration(of.paths) * (m.Idle + overhead)
	}
	total := time.Duration(runs) * block
	if w.Verify {
		total += time.Duration(of.paths) * (VerifyLength + overhead)
	}
	return total
}

// Searches is how many of the cells are searched.
func (p *Plan) Searches() int {
	parts := p.parts()
	return parts[len(parts)-1].searches
}

// Fit cuts the plan until it is estimated to take no longer than the budget: first repetitions, down to
// adaptive.min, or to six, the fewest that give a 95 % interval, which the design's Cuts say in words; then
// the cells listed last, which become skipped ones. Nothing is changed if not even one cell fits.
func (p *Plan) Fit(budget, overhead time.Duration) error {
	m := &p.Design.Method
	cells, runs, parts := len(p.Design.Cells), m.Runs, p.parts()
	least := min(runs, 6)
	if m.Adaptive != nil {
		least = m.Adaptive.Min
	}
	for runs > least && p.estimate(parts[cells], runs, overhead) > budget {
		runs--
	}
	for cells > 1 && p.estimate(parts[cells], runs, overhead) > budget {
		cells--
	}
	if need := p.estimate(parts[cells], runs, overhead); need > budget {
		return &Error{
			Text: fmt.Sprintf("one cell with %s takes %s and does not fit into %s",
				unit.Count(runs, "repetition"), unit.Seconds(need), unit.Seconds(budget)),
			HintText: "give a longer --budget, or a shorter method.duration"}
	}
	d := &p.Design
	if runs < m.Runs {
		d.Cuts = append(slices.Clone(d.Cuts), fmt.Sprintf("%s instead of %d", unit.Count(runs, "repetition"),
			m.Runs))
		m.Runs = runs
		if m.Adaptive != nil {
			a := *m.Adaptive
			a.Max, m.Adaptive = runs, &a
		}
	}
	d.Skipped = slices.Clone(d.Skipped)
	for _, c := range d.Cells[cells:] {
		d.Skipped = append(d.Skipped, record.Skipped{Factors: c, Reason: "cut by --budget"})
	}
	d.Cells = d.Cells[:cells:cells]
	return nil
}
