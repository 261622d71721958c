package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// VerifyLength is the duration of the load in a verification row.
const VerifyLength = 500 * time.Millisecond

// Estimate returns the duration of all rows, with overhead for the set-up, drain and collection of each row.
// With adaptive stopping, it returns the maximum duration.
func (p *Plan) Estimate(overhead time.Duration) time.Duration {
	parts := p.parts()
	return p.estimate(parts[len(parts)-1], p.Design.Method.Runs, overhead)
}

// part holds the numbers of cells, searches and paths in the first cells of a plan.
type part struct{ cells, searches, paths int }

// parts returns these numbers for the first n cells, for each n from 0.
func (p *Plan) parts() []part {
	seen := map[string]bool{}
	parts := []part{{}}
	searches := 0
	for i, c := range p.Design.Cells {
		if factor.Sends(c) {
			seen[p.Design.Path(c).Key()] = true
		}

		if p.Design.Searches(record.Assignment{Kind: record.RowLoad, Factors: c}) {
			searches++
		}

		parts = append(parts, part{i + 1, searches, len(seen)})
	}

	return parts
}

func (p *Plan) estimate(of part, runs int, overhead time.Duration) time.Duration {
	w := p.Design.Measure
	block := time.Duration(of.cells-of.searches) * p.rowTime(record.RowLoad, false, overhead)
	if of.searches > 0 {
		block += time.Duration(of.searches) * p.rowTime(record.RowLoad, true, overhead)
	}

	if w.LatencyIdle == IdleBlock {
		block += time.Duration(of.paths) * p.rowTime(record.RowIdle, false, overhead)
	}

	total := time.Duration(runs) * block
	if w.Verify {
		total += time.Duration(of.paths) * p.rowTime(record.RowVerify, false, overhead)
	}

	return total
}

// RowTime estimates the duration of a row.
func (p *Plan) RowTime(r record.Row, overhead time.Duration) time.Duration {
	return p.rowTime(r.Kind, p.Design.Searches(r.Assignment), overhead)
}

func (p *Plan) rowTime(kind string, searches bool, overhead time.Duration) time.Duration {
	m := p.Design.Method
	var load time.Duration
	switch {
	case kind == record.RowVerify:
		return VerifyLength + overhead
	case kind == record.RowIdle:
		return m.Idle + overhead
	case searches:
		load = estimateSearch(m, overhead)
	default:
		load = m.Warmup + m.Duration + m.Cooldown + overhead
	}

	if p.Design.Measure.LatencyIdle == IdleTrial {
		load += m.Idle
	}

	return load
}

// Searches returns the number of cells with a search.
func (p *Plan) Searches() int {
	parts := p.parts()
	return parts[len(parts)-1].searches
}

// slow lists effects that are not visible in short windows.
var slow = [...]struct {
	takes time.Duration
	what  string
}{
	{45 * time.Second, "heat that throttles a CPU after 30 to 45 s"},
	{10 * time.Second, "bursts that a shaper or policer allows for seconds"},
}

// MinWindow is the shortest window that Fit chooses. After this time, TCP has left slow start, and a short
// spike has little influence.
const MinWindow = 3 * time.Second

// Fit shortens the plan until its estimated duration does not exceed the budget. First it reduces the
// repetitions, to adaptive.min or to six, the minimum for a 95 % interval. Then it shortens windows, to at
// least MinWindow. Then it skips cells, starting from the end of the list, and uses the time left over for
// longer windows. Design.Cuts describes the changes. If not even one cell fits, Fit changes nothing and
// returns an error.
func (p *Plan) Fit(budget, overhead time.Duration) error {
	m := &p.Design.Method
	cells := len(p.Design.Cells)
	runs := m.Runs
	parts := p.parts()
	window := m.Duration
	takes := func() time.Duration { return p.estimate(parts[cells], runs, overhead) }
	least := min(runs, 6)
	if m.Adaptive != nil {
		least = m.Adaptive.Min
	}

	for runs > least && takes() > budget {
		runs--
	}

	if takes() > budget && m.Soak == 0 {
		m.Duration = min(window, MinWindow)
	}

	for cells > 1 && takes() > budget {
		cells--
	}

	spare := budget - takes()
	loads := parts[cells].cells - parts[cells].searches
	if loads == 0 {
		m.Duration = window // a search has its own windows
	} else if spare > 0 {
		longer := spare / time.Duration(loads*runs)
		m.Duration = min(window, m.Duration+longer.Truncate(100*time.Millisecond))
	}

	if spare < 0 {
		least := m.Duration
		m.Duration = window
		return &Error{
			Text: fmt.Sprintf("one cell with %s and windows of %s takes %s and does not fit into %s",
				unit.Count(runs, "repetition"), unit.Duration(least), unit.Seconds(budget-spare),
				unit.Seconds(budget)),
			HintText: "give a longer --for, or a shorter method.duration",
		}
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

	if m.Duration < window {
		cut := fmt.Sprintf("windows of %s instead of %s", unit.Duration(m.Duration), unit.Duration(window))
		d.Cuts = append(slices.Clone(d.Cuts), cut+p.missed(window, overhead))
	}

	d.Skipped = slices.Clone(d.Skipped)
	for _, c := range d.Cells[cells:] {
		d.Skipped = append(d.Skipped, record.Skipped{Factors: c, Reason: "cut by --for"})
	}

	d.Cells = d.Cells[:cells:cells]
	return nil
}

// missed describes the effects that shortened windows do not show, and the budget that would be needed for
// them.
func (p *Plan) missed(window, overhead time.Duration) string {
	m := &p.Design.Method
	cut := m.Duration
	defer func() { m.Duration = cut }()
	var what []string
	for _, s := range slow {
		if window < s.takes || cut >= s.takes {
			continue
		}

		what = append(what, s.what)
		m.Duration = max(m.Duration, s.takes)
	}

	if len(what) == 0 {
		return ""
	}

	keeps := (p.Estimate(overhead) + time.Minute - 1).Truncate(time.Minute)
	missed := strings.Join(what, ", and ")
	return fmt.Sprintf(": they miss %s; --for %s would show it", missed, unit.Duration(keeps))
}
