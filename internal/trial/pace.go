package trial

import (
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// rowOverhead is the time assumed to set up and collect a row.
const rowOverhead = 400 * time.Millisecond

// pace estimates the remaining time from the durations of previous rows of the same kind. The plan's
// estimate is the prior, so that the estimate changes slowly.
type pace struct {
	plan  *plan.Plan
	rows  []record.Row // remaining rows; the first is in progress
	began time.Time    // start of the first row
	seen  map[pacedKind]took
}

type pacedKind struct {
	kind   string
	search bool
}

type took struct {
	rows int
	time time.Duration
}

func (p *pace) kindOf(r record.Row) pacedKind {
	return pacedKind{r.Kind,
		p.plan.Design.Searches(r.Assignment)}
}

// begin sets the remaining rows, the first of which starts now.
func (p *pace) begin(rows []record.Row) { p.rows, p.began = rows, time.Now() }

// end records the duration of the row in progress.
func (p *pace) end() {
	if p.seen == nil {
		p.seen = map[pacedKind]took{}
	}

	kind := p.kindOf(p.rows[0])
	of := p.seen[kind]
	p.seen[kind] = took{of.rows + 1, of.time + time.Since(p.began)}
	p.rows = p.rows[1:]
}

// each returns the estimated duration of a row.
func (p *pace) each(r record.Row) time.Duration {
	const trusted = 2 // the plan's estimate counts like this many rows
	of := p.seen[p.kindOf(r)]
	return (trusted*p.plan.RowTime(r, rowOverhead) + of.time) / time.Duration(trusted+of.rows)
}

// left returns the estimated time until the last row ends. ended states that the trial in progress has
// ended.
func (p *pace) left(ended bool) (sum time.Duration) {
	for i, r := range p.rows {
		switch {
		case i > 0:
			sum += p.each(r)
		case !ended || p.plan.Design.Searches(r.Assignment): // the row has further trials
			sum += max(0, p.each(r)-time.Since(p.began))
		}
	}
	return sum
}
