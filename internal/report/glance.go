package report

import (
	"fmt"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Glance renders the current state of a node for a terminal of the given width.
func Glance(g *analysis.Glance, width int, colour bool) string {
	t := newTerminal(width, colour)
	names := widest(each(g.Cores, func(c analysis.CoreGlance) string { return c.Name }))
	for _, c := range g.Cores {
		t.line(fmt.Sprintf("  %-*s  %s %6s  softirq %s", names, c.Name, t.paint(busyCode(c.Busy),
			blocks(c.Busy, barWidth)), unit.Percent(c.Busy), unit.Percent(c.Softirq)))
	}

	if len(g.Cores) == 0 {
		t.line("  no core was sampled")
	}

	rows := [][]string{{"", "in", "out", "pps in", "pps out", "drops", "queue"}}
	for _, d := range g.Devices {
		rows = append(rows, []string{printable(d.Name), rateText("bit/s", d.RxBps),
			rateText("bit/s", d.TxBps), rateText("packet/s", d.RxPps), rateText("packet/s", d.TxPps),
			rateText("packet/s", d.DropPs), rateText("bytes", d.QueueBytes)})
	}

	if len(g.Devices) == 0 {
		t.line("  no packet passes")
	} else {
		t.aligned(rows)
	}

	var facts []string
	if g.ClockHz != nil {
		facts = append(facts, "clock "+rateText("Hz", *g.ClockHz))
	}

	if g.TemperatureC != nil {
		facts = append(facts, unit.Significant(*g.TemperatureC, 3)+" °C")
	}

	if g.PowerW != nil {
		facts = append(facts, unit.Significant(*g.PowerW, 3)+" W")
	}

	cost := "what observing costs is not known"
	if g.ObservingRatio != nil {
		cost = "observing costs " + unit.Percent(*g.ObservingRatio) + " of one core"
	}

	t.wrap("  ", "  ", strings.Join(append(facts, cost), ", "), dim)
	if c := g.Candidate; c != nil {
		t.wrap("  ", "  ", fmt.Sprintf("candidate: %s, %s sure", c.Text, unit.Percent(c.Confidence)), bold)
	} else {
		t.wrap("  ", "  ", "candidate: none that its own counters show", "")
	}

	return t.b.String()
}

// barWidth is the width of a bar in columns.
const barWidth = 24

// blocks draws a bar that is filled up to the given share of its width.
func blocks(share float64, width int) string {
	full := int(min(max(share, 0), 1)*float64(width) + .5)
	return strings.Repeat("█", full) + strings.Repeat("░", width-full)
}

// Utilisation at which a core is shown as nearly full or as full.
const (
	busyCore = .7
	fullCore = .93
)

func busyCode(share float64) string {
	switch {
	case share >= fullCore:
		return red
	case share >= busyCore:
		return yellow
	}
	return ""
}

func rateText(base string, v float64) string { return unit.ScaleOf(base, v).Text(v) }

// aligned prints rows in columns. All columns except the first are right-aligned.
func (t *terminal) aligned(rows [][]string) {
	for n, r := range rows {
		line := ""
		for i, text := range r {
			room := widest(each(rows, func(r []string) string { return r[i] }))
			if i == 0 {
				room = -room
			}

			line += fmt.Sprintf("  %*s", room, text)
		}

		line = fmt.Sprintf("%.*s", t.width, line) // a line that wraps would make the line count wrong
		if n == 0 {
			line = t.paint(dim, line)
		}

		t.line(line)
	}
}
