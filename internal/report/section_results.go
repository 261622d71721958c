package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// resultSection is the table that everything else explains.
func resultSection(v *view, s *Section) {
	s.ID, s.Title = "results", "Results"
	for _, t := range append(filled(resultTable(v)), flowTables(v)...) {
		s.add(t)
	}
}

// resultTable has one row per cell. Its notes are the cells' caveats and reasons: what several cells share
// stands once below, with a mark at each.
func resultTable(v *view) Table {
	t := Table{ID: "result-table", Cards: true, Caption: resultCaption(v, v.all), Columns: columns(
		"What was measured", "#Rate|goodput or packets", "#Loss|of UDP", "#RTT idle|p50 · p99",
		"#RTT under load|p50 · p99", "#Retransmits|TCP", "#Busiest core|"+coreOwner(v.all), "Validity")}
	for _, c := range v.all {
		busiest, _ := core(c)
		row := TableRow{Cells: []TableCell{nameCell(c), rateCell(v, c), v.cellOf(c, lossRatio),
			v.pair(c, "rtt_idle"), v.pair(c, "rtt_loaded"), v.cellOf(c, retransmits), v.cellOf(c, busiest),
			gradeCell(c)}}
		if c.Grade == evidence.GradeFailed {
			row.Tone = Bad
		}
		for _, r := range c.Reasons {
			row.Notes = append(row.Notes, reasonItem(c.Grade, r))
		}
		for _, k := range c.Caveats {
			row.Cells[0].Mark = append(row.Cells[0].Mark, t.note(k))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// note files a caveat once and returns its index.
func (t *Table) note(k record.Caveat) int {
	item := Item{Kind: k.Kind, Text: k.Text, Tone: Doubt}
	if i := indexOf(t.Notes, item); i >= 0 {
		return i
	}
	t.Notes = append(t.Notes, item)
	return len(t.Notes) - 1
}

// indexOf finds an item that says the same; -1 without one.
func indexOf(items []Item, item Item) int {
	return slices.IndexFunc(items, func(n Item) bool { return n.Kind == item.Kind && n.Text == item.Text })
}

func reasonItem(grade string, r evidence.Reason) Item {
	item := Item{Kind: r.Kind, Text: r.Text, Tone: Doubt}
	if grade == evidence.GradeFailed {
		item.Tone = Bad
	}
	if r.Trial != "" {
		item.Evidence = []string{"trial " + r.Trial}
	}
	return item
}

func resultCaption(v *view, all []*analysis.Cell) string {
	text := "Medians over the runs; with each rate its interval"
	if words := v.intervalsOf(all, goodput, packetRate); words != "" {
		text += ": " + words
	}
	return text + ". Goodput is TCP payload counted at the receiver, packets are those that arrived; " +
		"up is from client to server, and the direction is that of the data. " +
		"Round-trip times are percentiles of probes; warm-up is excluded everywhere."
}

func nameCell(c *analysis.Cell) TableCell {
	cell := TableCell{Text: c.Label, Long: c.Factors.Key()}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(c.Resolved)) {
		knob, place, _ := strings.Cut(name, "@")
		switch got := c.Resolved[name]; {
		case strings.EqualFold(got, c.Factors[name]) || got == c.Factors[knob]:
		case place != "":
			parts = append(parts, name+" "+got)
		default:
			parts = append(parts, got)
		}
	}
	parts = append(parts, "n = "+fmt.Sprint(c.Runs))
	if c.Failed > 0 {
		parts = append(parts, plural(c.Failed, "trial", "trials")+" failed")
	}
	cell.Sub = strings.Join(parts, " · ")
	return cell
}

// rateCell is goodput for TCP and packets per second for UDP.
func rateCell(v *view, c *analysis.Cell) TableCell {
	if !loaded(c) {
		return TableCell{Tone: Quiet, Text: "idle", Long: "no load: latency of the idle path"}
	}
	return v.cellOf(c, rateOf(c))
}

func rateOf(c *analysis.Cell) string {
	if packets(c) {
		return packetRate
	}
	return goodput
}

// cellOf is a metric's median over its interval, or why there is none.
func (v *view) cellOf(c *analysis.Cell, metric string) TableCell {
	x, ok := c.Metrics[metric]
	if !ok {
		return missingCell(c, metric)
	}
	return TableCell{Text: v.text(metric, x.Median), Sub: v.spread(metric, x),
		Long: v.sentence(metric, x), Num: number(c, metric)}
}

func missingCell(c *analysis.Cell, metric string) TableCell {
	if why := c.Missing[metric]; why != "" {
		return TableCell{Text: "n/a", Long: metric + ": unavailable: " + why, Tone: Quiet}
	}
	return none
}

// pair shows p50 and p99 of one distribution.
func (v *view) pair(c *analysis.Cell, stem string) TableCell {
	upper, lower := stem+"_p50_ns", stem+"_p99_ns"
	cell := v.cellOf(c, upper)
	cell.Sub = ""
	if x, ok := c.Metrics[lower]; ok {
		cell.Pre, cell.Sub = "p99 ", v.text(lower, x.Median)
		cell.More = number(c, lower)
		cell.Long += "\n" + v.sentence(lower, x)
	} else if why := c.Missing[lower]; why != "" {
		cell.Sub = "p99 n/a"
		cell.Long += "\n" + lower + ": unavailable: " + why
	}
	return cell
}

// coreOwner says whose cores the column of the busiest core shows.
func coreOwner(all []*analysis.Cell) string {
	var owners []string
	for _, c := range all {
		_, whose := core(c)
		owners = once(owners, whose)
	}
	if len(owners) > 1 {
		return "router, or shared host"
	}
	return "of the " + strings.Join(owners, "")
}

// gradeCell is the grade of the cell, and how even its rate was inside the windows. The reasons for the
// grade stand below the row.
func gradeCell(c *analysis.Cell) TableCell {
	cell := TableCell{Text: c.Grade, Tone: gradeTone(c.Grade)}
	for _, r := range c.Reasons {
		cell.Long += r.Kind + ": " + r.Text + "\n"
	}
	if k := c.Consistency; k != nil {
		cell.Pre, cell.Sub = "evenness ", strings.ToLower(k.Word)
		cell.Long += "relative unevenness of the rate inside the windows: " + unit.Percent(k.Ratio)
	}
	return cell
}

func gradeTone(grade string) Tone {
	switch grade {
	case evidence.GradeValid:
		return Good
	case evidence.GradeFailed:
		return Bad
	}
	return Doubt
}
