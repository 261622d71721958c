package trial

import (
	"maps"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// rowOverhead is the assumed time to set up a row and to collect its results.
const rowOverhead = 400 * time.Millisecond

// pace estimates the remaining time from the durations of previous rows of the same kind. The plan's
// estimate serves as the prior, so that the estimate changes slowly. The share of failed rows, and their
// duration, are estimated from all previous rows of any kind.
type pace struct {
	plan   *plan.Plan
	rows   []record.Row  // remaining rows, the first of which is in progress
	began  time.Time     // start of the row in progress, or of its repeated trial
	before time.Duration // duration of earlier trials of the row in progress
	seen   map[pacedKind]took
	good   int // number of rows in seen
	failed took
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

// begin sets the remaining rows. The first of them starts now.
func (p *pace) begin(rows []record.Row) { p.rows, p.began, p.before = rows, time.Now(), 0 }

// again records that the trial of the row in progress is repeated.
func (p *pace) again() {
	p.before += time.Since(p.began)
	p.began = time.Now()
}

// end records the duration of the row in progress, and whether a trial of it failed.
func (p *pace) end(failed bool) {
	p.seen = maps.Clone(p.seen) // cloned, because copies of p share the map
	if p.seen == nil {
		p.seen = map[pacedKind]took{}
	}

	kind := p.kindOf(p.rows[0])
	of := p.seen[kind]
	if failed {
		of = p.failed
	}

	of.rows++
	of.time += p.before + time.Since(p.began)
	if failed {
		p.failed = of
	} else {
		p.seen[kind] = of
		p.good++
	}

	p.begin(p.rows[1:])
}

// each returns the estimated duration of a row.
func (p *pace) each(r record.Row) time.Duration {
	const trusted = 2 // weight of the plan's own estimate, in rows
	of := p.seen[p.kindOf(r)]
	good := (trusted*p.plan.RowTime(r, rowOverhead) + of.time) / time.Duration(trusted+of.rows)
	weight := trusted + p.good
	return (good*time.Duration(weight) + p.failed.time) / time.Duration(weight+p.failed.rows)
}

// left returns the estimated time until the last row ends.
func (p *pace) left() (sum time.Duration) {
	for i, r := range p.rows {
		each := p.each(r)
		if i == 0 {
			each = max(0, each-time.Since(p.began))
		}

		sum += each
	}
	return sum
}
