package report

import (
	_ "embed" // the page's template
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/history"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

//go:embed history.tmpl
var historyTemplate string

// HistoryJSON returns the document as indented JSON.
func HistoryJSON(h *history.History) ([]byte, error) { return indented("history of plan "+h.Plan, h) }

// HistoryCSV writes a line for each cell and run, including the results of the canary firmware.
func HistoryCSV(h *history.History) ([]byte, error) {
	lines := [][]string{{"cell", "label", "metric", "unit", "started", "run", "name", "firmware", "kernel",
		"canary", "n", "median", "low", "high", "grade", "missing", "change", "status"}}
	for _, c := range h.Cells {
		for i, p := range slices.Concat(c.Points, c.Canary) {
			lines = append(lines, pointLine(&c, p, i >= len(c.Points)))
		}
	}

	return inCSV(lines)
}

func pointLine(c *history.Cell, p history.Point, canary bool) []string {
	numbers := make([]string, 4)
	missing := p.Why
	if v := p.Value; v != nil {
		numbers = []string{strconv.Itoa(v.N), decimal(v.Median), decimal(v.Low), decimal(v.High)}
		missing = ""
	}

	change, status := "", ""
	if x := c.ChangeAt(p); x != nil && !canary {
		change, status = x.Better, x.Status
	}

	line := each([]string{c.ID, c.Label, c.Metric.Name, c.Metric.Unit, p.Started.UTC().Format(time.RFC3339),
		p.Run, p.Name, p.Firmware, p.Kernel, strconv.FormatBool(canary)}, asText)
	line = append(line, numbers...)
	return append(line, each([]string{p.Grade, missing, change, status}, asText)...)
}

// ChangeWords describes a change in a cell's history.
func ChangeWords(c *history.Cell, x history.Change) string {
	name := c.Metric.Name
	text := metrics.Label(name) + ": " + metrics.Say(name, x.Old) + " → " + metrics.Say(name, x.New)
	if x.Ratio > 0 {
		text += ", " + unit.Ratio(x.Ratio)
		if x.Low != nil {
			text += " (" + unit.Ratio(*x.Low) + " to " + unit.Ratio(*x.High) + ")"
		}
	}

	text = joined(", ", x.Better, x.Status) + ": " + text
	text += ", between run " + x.Before + " and run " + x.After
	switch x.Testbed {
	case history.TestbedChanged:
		text += "; the canary firmware changed likewise: it is the testbed"
	case history.TestbedUnchanged:
		text += "; no change of the canary firmware was found"
	case history.TestbedUnknown:
		text += "; the canary firmware has too few runs there to tell whether it is the testbed"
	}

	if x.Suspect {
		text += "; most runs after it are suspect"
	}

	return text
}

// HistoryJUnit renders a history for CI systems, with a test for each cell. The test fails if the cell's last
// change is a confirmed regression that is not due to the testbed. It is skipped if the last change is only
// proposed or, unless strict is set, suspect.
func HistoryJUnit(h *history.History, strict bool) ([]byte, error) {
	s := &junitSuite{Name: printable("chokepoint history " + h.Plan + " on " + h.Device)}
	for _, c := range h.Cells {
		t := junitCase{Class: "history", Name: printable(c.Label)}
		t.Properties.add("id", c.ID)
		t.Properties.add("metric", c.Metric.Name)
		t.Properties.add("runs", strconv.Itoa(len(c.Points)))
		x, bad := c.Regressed(strict)
		if len(c.Changes) > 0 {
			reason := because(ChangeWords(&c, x))
			t.Properties.add("ratio", decimal(x.Ratio))
			t.Out = strings.Join(append([]string{reason.Message}, each(x.Causes, printable)...), "\n")
			switch {
			case bad:
				t.Failure = reason
			case x.Better == history.Worse && x.Status != history.NotRepeated &&
				x.Testbed != history.TestbedChanged:
				t.Skipped = reason
			}
		}

		s.add(t)
	}

	return s.encode()
}

// HistorySVG draws the chart of the first cell as a standalone file.
func HistorySVG(h *history.History) ([]byte, error) {
	c := &h.Cells[0]
	s := sheet{
		Title:   c.Label + ": " + metrics.Label(c.Metric.Name) + " over time",
		Sub:     "Plan " + h.Plan + " on " + h.Device,
		Legend:  trendLegend(c),
		Draw:    trend{c},
		Natural: wideWidth,
		Foot:    each(c.Changes, func(x history.Change) string { return ChangeWords(c, x) }),
	}
	return s.drawn(c.Points[len(c.Points)-1].Run, "history", "svg", Size{})
}

// HistoryHTML returns a page with a chart and a table for each cell, and with links to a server's other pages
// at the top. The page needs no network.
func HistoryHTML(h *history.History, links ...Link) ([]byte, error) {
	return laidOut("history of plan "+h.Plan, layout(historyTemplate, nil), pageScript, map[string]any{
		"Links":    links,
		"History":  h,
		"Sections": each(h.Cells, historySection),
	})
}

// maxHistoryRows is the maximum number of runs in the table of a cell. Laying out thousands of rows would
// take longer than everything else.
const maxHistoryRows = 200

func historySection(cell history.Cell) Section {
	c := &cell
	s := Section{ID: "cell-" + c.ID, Title: c.Label}
	var changes []Item
	for _, x := range c.Changes {
		tone := Plain
		if x.Better == history.Worse && x.Testbed != history.TestbedChanged {
			tone = Doubt
			if x.Status == history.Confirmed {
				tone = Bad
			}
		}

		changes = append(changes, Item{Text: ChangeWords(c, x), Evidence: x.Causes, Tone: tone})
	}

	t := Table{
		ID:      "runs-" + c.ID,
		Cards:   true,
		Folded:  true,
		Caption: "The runs of this chart",
		Columns: columns("Date", "Run", "Firmware", "Kernel", "#n", "#Median", "#Interval", "Validity",
			"Change"),
	}
	shown := c.Points[max(0, len(c.Points)-maxHistoryRows):]
	if len(shown) < len(c.Points) {
		t.Caption = fmt.Sprintf("The newest %d of the %d runs of this chart; chokepoint history --format "+
			"csv lists all", len(shown), len(c.Points))
	}

	for _, p := range shown {
		t.row(pointCells(c, p))
	}

	s.add(Figure{
		ID:     "history-" + c.ID,
		Title:  upperFirst(metrics.Label(c.Metric.Name)) + " over time",
		Legend: trendLegend(c),
		Caption: "Points: the median of each run. Whisker: its interval. Lines: the median between change " +
			"points. The axis does not begin at zero.",
		Draw:    trend{c},
		Table:   &t,
		Unsaved: true,
	})
	s.list("Changes", changes)
	return s
}

func pointCells(c *history.Cell, p history.Point) []TableCell {
	started := TableCell{Text: p.Started.Local().Format("2006-01-02 15:04")}
	if p.GapDays > 0 {
		started.Sub = fmt.Sprintf("after %v days without a run", p.GapDays)
	}

	var n, median, interval, change string
	if v := p.Value; v != nil {
		n, median = strconv.Itoa(v.N), metrics.Say(c.Metric.Name, v.Median)
		if v.N > 1 {
			scale := unit.ScaleOf(c.Metric.Unit, v.Median)
			interval = scale.Number(v.Low) + "–" + scale.Number(v.High)
		}
	}

	if x := c.ChangeAt(p); x != nil {
		change = joined(", ", x.Better, x.Status)
	}

	grade := TableCell{Text: p.Grade}
	if p.Grade != evidence.GradeValid {
		grade.Sub = p.Why
		grade.Tone = Doubt
	}

	return []TableCell{started, {Text: p.Run, Sub: p.Name}, textCell(p.Firmware), textCell(p.Kernel),
		textCell(n), textCell(median), textCell(interval), grade, {Text: change}}
}

func trendLegend(c *history.Cell) []LegendItem {
	var legend []LegendItem
	if len(c.Changes) > 0 {
		legend = []LegendItem{{"ceiling", "change point"}, {"line c1", "level between change points"}}
	}

	if slices.ContainsFunc(c.Points, func(p history.Point) bool { return p.Grade == evidence.GradeSuspect }) {
		legend = append(legend, LegendItem{"hollow c1", suspectWord})
	}

	if len(c.Canary) > 0 {
		legend = append(legend, LegendItem{"run-line c2", "canary firmware"})
	}

	return legend
}

// trend draws a cell's results over time, with the levels between change points.
type trend struct{ *history.Cell }

// Draw does not start the axis at zero, so that a change of a few per cent is visible.
func (t trend) Draw(width float64) *canvas {
	const top, height = 28, 240
	left, right := 66.0, 12.0
	name := metrics.Label(t.Metric.Name)
	c := &canvas{w: width, h: top + height + 26}
	c.label = t.Label + ": " + name + " of " + unit.Count(len(t.Points), "run")
	low, high := t.bounds()
	marks := ticks(low, high, 5)
	y := linear{low, high, top + height, top}
	scale := unit.ScaleOf(t.Metric.Unit, high)
	for _, m := range marks {
		c.level(y.at(m), left, width-right, 8, tickText(scale, m))
	}

	c.text("ax", "start", 0, 12, name+", "+scale.Unit)
	all := slices.Concat(t.Points, t.Canary)
	byTime := func(a, b history.Point) int { return a.Started.Compare(b.Started) }
	first, last := slices.MinFunc(all, byTime).Started, slices.MaxFunc(all, byTime).Started
	days := linear{float64(first.Unix()), float64(last.Unix()), left + 12, width - right - 12}
	x := func(at time.Time) float64 { return days.at(float64(at.Unix())) }
	for _, p := range t.Points {
		c.tick("middle", x(p.Started), top+height+17, p.Started.Local().Format("2 Jan 06"))
	}

	for _, change := range t.Changes {
		at := (x(change.From) + x(change.To)) / 2
		c.open(ChangeWords(t.Cell, change))
		c.upright("ceiling", at, top, top+height)
		c.close()
	}

	t.draw(c, t.Canary, t.CanaryChanges, "c2", x, y)
	t.draw(c, t.Points, t.Changes, "c1", x, y)
	return c
}

// bounds returns the range of the axis.
func (t trend) bounds() (low, high float64) {
	low = math.MaxFloat64
	for _, p := range slices.Concat(t.Points, t.Canary) {
		if p.Value != nil {
			low, high = min(low, p.Value.Low), max(high, p.Value.High)
		}
	}

	low = min(low, high) // without a number, both are 0
	room := max((high-low)/10, high/50)
	return max(0, low-room), high + room
}

// draw draws the median of each run with its interval, and a cross for a run without a number. It also draws
// the levels before and after each change.
func (t trend) draw(c *canvas, points []history.Point, changes []history.Change, class string,
	x func(time.Time) float64, y linear) {
	var joined polyline
	for _, p := range points {
		joined.open = joined.open && p.Value != nil && p.GapDays == 0
		if p.Value != nil {
			joined.to(x(p.Started), y.at(p.Value.Median))
		}
	}

	c.path("run-line "+class, joined.d)
	for i, change := range changes {
		from, to := points[0].Started, points[len(points)-1].Started
		if i > 0 {
			from = changes[i-1].To
		}

		if i+1 < len(changes) {
			to = changes[i+1].From
		}

		c.line("line "+class, x(from), y.at(change.Old), x(change.From), y.at(change.Old))
		c.line("line "+class, x(change.To), y.at(change.New), x(to), y.at(change.New))
	}

	for _, p := range points {
		at := x(p.Started)
		c.open(pointWords(t.Metric, p))
		if p.Value == nil {
			c.text("t bad", "middle", at, y.from-4, "×")
		} else {
			if p.Value.N > 1 {
				c.whisker(at, y.at(p.Value.Low), at, y.at(p.Value.High))
			}

			c.circle(pointKind(p.Grade == evidence.GradeSuspect)+class, at, y.at(p.Value.Median), 4)
		}

		c.close()
	}
}

func pointWords(m record.Metric, p history.Point) string {
	value := "no number" + around(": ", p.Why, "")
	if p.Value != nil {
		value = metrics.Say(m.Name, p.Value.Median) + ", n = " + strconv.Itoa(p.Value.N)
	}
	return joined(", ", p.Started.Local().Format("2006-01-02 15:04"), p.Run, p.Name, p.Firmware, value,
		p.Grade)
}
