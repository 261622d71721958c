// Package history follows the medians of a cell over the runs of a plan on a device, and proposes where they
// changed. It is pure.
package history

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// History holds the cells of a plan on a device, each over all of its runs.
type History struct {
	Format string `json:"format"`
	Plan   string `json:"plan"`
	Device string `json:"device"`
	Canary string `json:"canary,omitempty"` // firmware that never changes
	Runs   int    `json:"runs"`             // of the plan on the device
	Cells  []Cell `json:"cells"`
}

// Cell is one cell over time.
type Cell struct {
	ID      string         `json:"id"`
	Label   string         `json:"label"`
	Factors record.Factors `json:"factors"` // without the firmware
	Metric  record.Metric  `json:"metric"`
	Points  []Point        `json:"points"` // the oldest first
	Changes []Change       `json:"changes"`
	Canary  []Point        `json:"canary,omitempty"` // the same cell with the canary firmware
	// CanaryChanges holds the change points of Canary.
	CanaryChanges []Change `json:"canary_changes,omitempty"`
}

// Point is a cell in one run.
type Point struct {
	Run      string           `json:"run"`
	Name     string           `json:"name,omitempty"`
	Started  time.Time        `json:"started"`
	Firmware string           `json:"firmware,omitempty"`
	Kernel   string           `json:"kernel,omitempty"`
	Value    *record.Estimate `json:"value,omitempty"` // absent: the run has no number
	Grade    string           `json:"grade"`
	Why      string           `json:"why,omitempty"`
	// GapDays is the time since the previous run, if that is much more than usual.
	GapDays float64 `json:"gap_days,omitempty"`
}

// Change is a change point: from one run to the next that has a number, the level changed.
type Change struct {
	Before string `json:"before"` // run
	After  string `json:"after"`  // run
	// Firmware is of the first point after the change; it distinguishes the points of one run.
	Firmware string    `json:"-"`
	From     time.Time `json:"from"` // when Before started
	To       time.Time `json:"to"`
	Old      float64   `json:"old"` // median of the runs since the change before
	New      float64   `json:"new"` // median of the runs until the next change
	// Ratio is New ÷ Old with its interval, if all values are positive; the bounds need enough runs.
	Ratio   float64  `json:"ratio,omitempty"`
	Low     *float64 `json:"low,omitempty"`
	High    *float64 `json:"high,omitempty"`
	P       float64  `json:"p"`                // of the permutation test
	Better  string   `json:"better,omitempty"` // "better" or "worse"
	Status  string   `json:"status"`           // "proposed", "confirmed" or "not repeated"
	Retests int      `json:"retests"`          // runs under the same conditions after those that propose it
	Suspect bool     `json:"suspect,omitempty"`
	// Testbed is "changed" if the canary firmware changed likewise, "unchanged" if it has runs on both sides
	// and no such change was found, and "unknown" if it lacks them. It is absent without a canary.
	Testbed string `json:"testbed,omitempty"`
	// Causes lists what else is known to differ between Before and After.
	Causes []string `json:"causes,omitempty"`
}

// Statuses of a change.
const (
	Proposed    = "proposed"
	Confirmed   = "confirmed"
	NotRepeated = "not repeated"
)

// Answers of the canary.
const (
	TestbedChanged   = "changed"
	TestbedUnchanged = "unchanged"
	TestbedUnknown   = "unknown"
)

// Directions of a change.
const (
	Better = "better"
	Worse  = "worse"
)

// Run is a run with its results in one cell: several if it varied the firmware.
type Run struct {
	ID, Name string
	Started  time.Time
	record.ResultFacts
	Results []record.CellResult
}

// Of returns the history of a cell, described by its newest result, over runs in any order. The firmware that
// canary names is apart from the others. An empty metric is that by which the cell is known.
func Of(newest record.CellResult, runs []Run, metric, canary string) Cell {
	c := Cell{
		ID:      newest.Factors.ID(),
		Label:   newest.Label,
		Factors: newest.Factors,
		Metric:  metrics.Of(cmp.Or(metric, newest.Metric)),
		Points:  []Point{},
		Changes: []Change{},
	}
	slices.SortFunc(runs, func(a, b Run) int {
		return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.ID, b.ID))
	})
	for _, r := range runs {
		for _, x := range r.Results {
			p := pointOf(r, x, c.Metric.Name)
			if canary != "" && factor.Tells(p.Firmware, canary) {
				c.Canary = append(c.Canary, p)
			} else {
				c.Points = append(c.Points, p)
			}
		}
	}

	markGaps(c.Points)
	c.Changes = append(c.Changes, changes(c.Points, c.Metric)...)
	c.CanaryChanges = changes(c.Canary, c.Metric)
	if canary != "" {
		for i := range c.Changes {
			c.Changes[i].Testbed = c.testbed(c.Changes[i])
		}
	}

	return c
}

func pointOf(r Run, x record.CellResult, metric string) Point {
	p := Point{
		Run:      r.ID,
		Name:     r.Name,
		Started:  r.Started,
		Firmware: r.Firmware,
		Kernel:   r.Kernel,
		Grade:    x.Grade,
		Why:      x.Why,
	}
	if x.Firmware != "" { // its kernel was not read
		p.Firmware = x.Firmware
		p.Kernel = ""
	}

	v, ok := x.Metrics[metric]
	if ok {
		p.Value = &v
	}

	return p
}

// A gap is this many times as long as the usual time between two runs, and a day at least.
const gapTimes = 3

func markGaps(points []Point) {
	var between []float64
	for i := 1; i < len(points); i++ {
		between = append(between, points[i].Started.Sub(points[i-1].Started).Hours()/24)
	}

	// The points of a run that varied the firmware have the same time.
	apart := slices.DeleteFunc(slices.Clone(between), func(days float64) bool { return days == 0 })
	usual := statistics.Median(apart)
	for i, days := range between {
		if days > max(1, gapTimes*usual) {
			points[i+1].GapDays = math.Round(days*10) / 10
		}
	}
}

// nearby bounds the runs on either side of a change by which its ratio has an interval, and by which it is
// decided when the change was first proposed.
const nearby = 30

// changes returns the change points of a series. Runs without a number are left out; each other run counts
// once, whatever its number of trials, because runs differ by more than the trials of one run.
func changes(points []Point, metric record.Metric) []Change {
	points = slices.DeleteFunc(slices.Clone(points), func(p Point) bool { return p.Value == nil })
	values := make([]float64, len(points))
	positive := true
	for i, p := range points {
		values[i] = p.Value.Median
		positive = positive && values[i] > 0
	}

	if positive {
		for i := range values {
			values[i] = math.Log(values[i])
		}
	}

	all := statistics.ChangePoints(values)
	found := slices.DeleteFunc(slices.Clone(all), func(c statistics.ChangePoint) bool {
		start, end := segment(all, c, len(values))
		step := statistics.Median(values[c.At:end]) - statistics.Median(values[start:c.At])
		return positive && math.Abs(step) < math.Log1p(statistics.SmallestRelevant)
	})
	var out []Change
	for _, c := range found {
		start, end := segment(found, c, len(values))
		x := Change{
			Before:   points[c.At-1].Run,
			After:    points[c.At].Run,
			Firmware: points[c.At].Firmware,
			From:     points[c.At-1].Started,
			To:       points[c.At].Started,
			P:        c.P,
		}
		x.measure(values[start:c.At], values[c.At:end], positive)
		x.retest(points[start:end], values[start:end], c.At-start)
		x.Suspect = suspect(points[c.At:end])
		if metric.Better != "" && x.New != x.Old {
			x.Better = Worse
			if x.New > x.Old == (metric.Better == record.Higher) {
				x.Better = Better
			}
		}

		out = append(out, x)
	}

	return out
}

// segment returns the bounds of the levels before and after a change point of a series of n values.
func segment(all []statistics.ChangePoint, c statistics.ChangePoint, n int) (start, end int) {
	end = n
	for _, other := range all {
		if other.At < c.At {
			start = other.At
		}

		if other.At > c.At {
			return start, other.At
		}
	}
	return start, end
}

// measure fills in the levels on both sides.
func (x *Change) measure(before, after []float64, positive bool) {
	x.Old, x.New = statistics.Median(before), statistics.Median(after)
	if !positive {
		return
	}

	x.Old, x.New = math.Exp(x.Old), math.Exp(x.New)
	x.Ratio = x.New / x.Old
	before = before[max(0, len(before)-nearby):]
	_, low, high, _, ok := statistics.Shift(before, after[:min(len(after), nearby)])
	if ok {
		low, high = math.Exp(low), math.Exp(high)
		x.Low, x.High = &low, &high
	}
}

// retest finds the runs that propose a change at an index, the first after it by which it is found, and what
// later runs of the same firmware and kernel say. A change is confirmed if their median is nearer to the new
// level, and proposed as long as there is none.
func (x *Change) retest(points []Point, values []float64, at int) {
	from := max(0, at-nearby)
	enough := at + statistics.MinSegment
	for enough < min(len(values), at+nearby) {
		c, ok := statistics.Divide(values[from:enough])
		if ok && max(c.At-(at-from), at-from-c.At) <= 1 {
			break
		}

		enough++
	}

	var again []float64
	for i, p := range points[enough:] {
		if p.Firmware == points[at].Firmware && p.Kernel == points[at].Kernel {
			again = append(again, values[enough+i])
		}
	}

	x.Retests = len(again)
	x.Status = Proposed
	if len(again) == 0 {
		return
	}

	x.Status = NotRepeated
	was, is := statistics.Median(values[:at]), statistics.Median(values[at:enough])
	level := statistics.Median(again)
	if math.Abs(level-is) < math.Abs(level-was) {
		x.Status = Confirmed
	}
}

// suspect reports whether most of some runs are suspect.
func suspect(points []Point) bool {
	n := 0
	for _, p := range points {
		if p.Grade == evidence.GradeSuspect {
			n++
		}
	}
	return 2*n > len(points)
}

// testbed asks the canary about a change.
func (c *Cell) testbed(x Change) string {
	for _, y := range c.CanaryChanges {
		// Either place may be one run off.
		from, to := wider(c.Canary, y)
		if y.New > y.Old == (x.New > x.Old) && !from.After(x.To) && !to.Before(x.From) {
			return TestbedChanged
		}
	}

	before, after := 0, 0
	for _, p := range c.Canary {
		switch {
		case p.Value == nil:
		case !p.Started.After(x.From):
			before++
		case !p.Started.Before(x.To):
			after++
		}
	}

	if before < canaryRuns || after < canaryRuns {
		return TestbedUnknown
	}

	return TestbedUnchanged
}

// canaryRuns is the number of a canary's runs on either side of a change from which on a step of its own is
// looked for. A small one may be missed even so.
const canaryRuns = 5

// wider returns the times of the runs before and after those of a change.
func wider(points []Point, x Change) (from, to time.Time) {
	from, to = x.From, x.To
	for _, p := range points {
		if p.Started.Before(x.From) {
			from = p.Started
		}

		if p.Started.After(x.To) {
			return from, p.Started
		}
	}
	return from, to
}

// Regressed returns the last change of the cell if it is for the worse, confirmed and not the testbed's. With
// strict it may be suspect.
func (c *Cell) Regressed(strict bool) (Change, bool) {
	if len(c.Changes) == 0 {
		return Change{}, false
	}

	x := c.Changes[len(c.Changes)-1]
	counts := x.Better == Worse && x.Status == Confirmed && x.Testbed != TestbedChanged
	return x, counts && (strict || !x.Suspect)
}

// ChangeAt returns the change after which a point is the first, nil if there is none.
func (c *Cell) ChangeAt(p Point) *Change {
	for i := range c.Changes {
		x := &c.Changes[i]
		if x.After == p.Run && x.Firmware == p.Firmware && x.To.Equal(p.Started) {
			return x
		}
	}
	return nil
}
