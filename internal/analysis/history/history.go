// Package history collects the medians of a cell over the runs of a plan on a device, and detects when they
// changed. It has no side effects.
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

// History holds the cells of a plan on a device, each with the results of all runs.
type History struct {
	Format string `json:"format"`
	Plan   string `json:"plan"`
	Device string `json:"device"`
	Canary string `json:"canary,omitempty"` // firmware that is never changed
	Runs   int    `json:"runs"`             // number of runs of the plan on the device
	Cells  []Cell `json:"cells"`
}

// Cell holds the results of one combination of factors in all runs of a history.
type Cell struct {
	ID      string         `json:"id"`
	Label   string         `json:"label"`
	Factors record.Factors `json:"factors"` // without firmware
	Metric  record.Metric  `json:"metric"`
	Points  []Point        `json:"points"` // oldest first
	Changes []Change       `json:"changes"`
	Canary  []Point        `json:"canary,omitempty"` // results of the cell with the canary firmware
	// CanaryChanges are the change points in Canary.
	CanaryChanges []Change `json:"canary_changes,omitempty"`
}

// Point is the result of a cell in one run.
type Point struct {
	Run      string           `json:"run"`
	Name     string           `json:"name,omitempty"`
	Started  time.Time        `json:"started"`
	Firmware string           `json:"firmware,omitempty"`
	Kernel   string           `json:"kernel,omitempty"`
	Value    *record.Estimate `json:"value,omitempty"` // absent if the run has no value
	Grade    string           `json:"grade"`
	Why      string           `json:"why,omitempty"`
	// GapDays is the time since the previous run in days, if it is much longer than usual.
	GapDays float64 `json:"gap_days,omitempty"`
}

// Change is a change point. The level changes there between two successive runs that have a value.
type Change struct {
	Before string `json:"before"` // id of the last run before the change
	After  string `json:"after"`  // id of the first run after the change
	// Firmware is the firmware of the first point after the change. The run After alone does not identify
	// this point, because a run may have several points.
	Firmware string    `json:"-"`
	From     time.Time `json:"from"` // start time of Before
	To       time.Time `json:"to"`
	Old      float64   `json:"old"` // median of the runs since the previous change
	New      float64   `json:"new"` // median of the runs before the next change
	// Ratio is New ÷ Old. It is absent unless all values are positive. Low and High are the ends of its
	// interval, or nil if there are too few runs.
	Ratio   float64  `json:"ratio,omitempty"`
	Low     *float64 `json:"low,omitempty"`
	High    *float64 `json:"high,omitempty"`
	P       float64  `json:"p"`                // p-value of the permutation test
	Better  string   `json:"better,omitempty"` // "better" or "worse"
	Status  string   `json:"status"`           // "proposed", "confirmed" or "not repeated"
	Retests int      `json:"retests"`          // number of later runs under the same conditions
	Suspect bool     `json:"suspect,omitempty"`
	// Testbed states whether the results with the canary firmware changed at that time. It is "changed" if
	// they changed in the same direction, "unchanged" if they did not, and "unknown" if there are too few
	// canary runs before or after the change. It is absent if there is no canary.
	Testbed string `json:"testbed,omitempty"`
	// Causes lists the known differences between the runs Before and After.
	Causes []string `json:"causes,omitempty"`
}

// Values of Change.Status.
const (
	Proposed    = "proposed"
	Confirmed   = "confirmed"
	NotRepeated = "not repeated"
)

// Values of Change.Testbed.
const (
	TestbedChanged   = "changed"
	TestbedUnchanged = "unchanged"
	TestbedUnknown   = "unknown"
)

// Values of Change.Better.
const (
	Better = "better"
	Worse  = "worse"
)

// Run is a run with its results for one cell. If it varied the firmware, it has several results.
type Run struct {
	ID, Name string
	Started  time.Time
	record.ResultFacts
	Results []record.CellResult
}

// Of returns the history of a cell, given its newest result. runs may be in any order. Results with the
// canary firmware are kept separately. If metric is empty, the history is that of the metric that represents
// the cell.
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
	if x.Firmware != "" { // the run varied the firmware, and did not record the kernel of each firmware
		p.Firmware = x.Firmware
		p.Kernel = ""
	}

	v, ok := x.Metrics[metric]
	if ok {
		p.Value = &v
	}

	return p
}

// A gap is at least gapTimes the median time between runs, and at least a day.
const gapTimes = 3

func markGaps(points []Point) {
	var between []float64
	for i := 1; i < len(points); i++ {
		between = append(between, points[i].Started.Sub(points[i-1].Started).Hours()/24)
	}

	// A run that varied the firmware has several points with the same time.
	apart := slices.DeleteFunc(slices.Clone(between), func(days float64) bool { return days == 0 })
	usual := statistics.Median(apart)
	for i, days := range between {
		if days > max(1, gapTimes*usual) {
			points[i+1].GapDays = math.Round(days*10) / 10
		}
	}
}

// nearby is the maximum number of runs on each side of a change that are considered, both for the interval of
// its ratio and to find out when it was first detectable.
const nearby = 30

// changes returns the change points of a series. It omits runs without a value. The other runs have equal
// weight, whatever their number of trials, because different runs differ more than the trials of one run.
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

// segment returns the range of values from the change point before c to the change point after c, in a series
// of n values.
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

// measure sets the levels before and after the change, and their ratio.
func (x *Change) measure(before, after []float64, positive bool) {
	x.Old = statistics.Median(before)
	x.New = statistics.Median(after)
	if !positive {
		return
	}

	x.Old = math.Exp(x.Old)
	x.New = math.Exp(x.New)
	x.Ratio = x.New / x.Old
	before = before[max(0, len(before)-nearby):]
	_, low, high, _, ok := statistics.Shift(before, after[:min(len(after), nearby)])
	if ok {
		low = math.Exp(low)
		high = math.Exp(high)
		x.Low = &low
		x.High = &high
	}
}

// retest sets the status of a change that starts at index at. It determines how many runs after the change
// were needed to detect it. Of the later runs, it considers those with the same firmware and kernel. The
// change is confirmed if their median is closer to the new level than to the old one. It is proposed if there
// are no such runs.
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
	was := statistics.Median(values[:at])
	is := statistics.Median(values[at:enough])
	level := statistics.Median(again)
	if math.Abs(level-is) < math.Abs(level-was) {
		x.Status = Confirmed
	}
}

// suspect reports whether most of the runs are suspect.
func suspect(points []Point) bool {
	n := 0
	for _, p := range points {
		if p.Grade == evidence.GradeSuspect {
			n++
		}
	}
	return 2*n > len(points)
}

// testbed returns the value of Change.Testbed for the change x.
func (c *Cell) testbed(x Change) string {
	for _, y := range c.CanaryChanges {
		// Either change point may be off by one run.
		from, to := wider(c.Canary, y)
		if y.New > y.Old == (x.New > x.Old) && !from.After(x.To) && !to.Before(x.From) {
			return TestbedChanged
		}
	}

	before := 0
	after := 0
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

// canaryRuns is the minimum number of canary runs on each side of a change. If the canary shows no change and
// has fewer runs, it is unknown whether the testbed changed. Even with more runs, a small change may be
// missed.
const canaryRuns = 5

// wider extends the time range of a change by one run on each side.
func wider(points []Point, x Change) (from, to time.Time) {
	from = x.From
	to = x.To
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

// Regressed returns the last change of the cell if it is a confirmed regression that is not due to the
// testbed. Suspect changes count only if strict is set.
func (c *Cell) Regressed(strict bool) (Change, bool) {
	if len(c.Changes) == 0 {
		return Change{}, false
	}

	x := c.Changes[len(c.Changes)-1]
	counts := x.Better == Worse && x.Status == Confirmed && x.Testbed != TestbedChanged
	return x, counts && (strict || !x.Suspect)
}

// ChangeAt returns the change whose first point is p, or nil if there is none.
func (c *Cell) ChangeAt(p Point) *Change {
	for i := range c.Changes {
		x := &c.Changes[i]
		if x.After == p.Run && x.Firmware == p.Firmware && x.To.Equal(p.Started) {
			return x
		}
	}
	return nil
}
