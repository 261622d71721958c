package report

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// searchSection shows the highest rate that meets the goals.
func searchSection(v *view, s *Section) {
	if v.Searching == nil {
		return
	}

	s.Lead = "Found by MLRsearch (RFC 9971), preset " + v.Searching.Preset +
		": the lower bound is the highest load that met its goal below the lowest one that did not."
	for _, t := range v.searchTables() {
		s.add(t)
	}

	s.add(goalTable(v))
	s.list("What the numbers mean", quietItems(v.Searching.Notes))
	s.list("Where this deviates from RFC 2544", quietItems(v.Searching.Deviations))
	s.add(stepTable(v))
}

func quietItems(lines []string) []Item { return items("", Quiet, each(lines, upperFirst)...) }

// searchTables returns a table of the results of the searches and, if there are any, tables of further RFC
// 2544 tests.
func (v *view) searchTables() []Table {
	if len(v.Searches) == 0 {
		return nil
	}
	return append([]Table{searchTable(v)}, filled(standardTable(v), lossTable(v))...)
}

// openTables returns the tables that are not collapsed.
func (v *view) openTables() []Table {
	return filter(v.searchTables(), func(t Table) bool { return !t.Folded })
}

// searchTable returns a table with one row per search and goal.
func searchTable(v *view) Table {
	t := Table{
		ID:    "search-table",
		Cards: true,
		Columns: columns("Searched", "Goal|loss",
			"#Throughput|payload", "#Lower|bound", "#Upper|bound", "#Trials|time"),
		Caption: "Throughput " +
			"is the conditional throughput of RFC 9971. Loads are of one interface" + interfaceWords(v) + ".",
	}
	for _, s := range v.Searches {
		for k, r := range s.Results {
			row := t.row(v.searchName(s), v.goalCell(k), throughputCell(v, s.Unit, r),
				v.rateOr(s.Unit, r.Lower), v.rateOr(s.Unit, r.Upper),
				TableCell{Text: strconv.Itoa(s.Trials), Sub: rateText("s", s.Seconds)})
			if r.Irregular != "" {
				row.Notes = items("irregular", Doubt, "goal "+r.Goal+": "+r.Irregular)
			}
		}
	}
	return t
}

func interfaceWords(v *view) string {
	for _, s := range v.Searches {
		if s.Interfaces != 1 {
			return fmt.Sprintf("; × %d is the load of all, where traffic runs in both directions",
				s.Interfaces)
		}
	}
	return ", and only one is loaded"
}

func (v *view) searchName(s analysis.SearchView) TableCell {
	cell := cellName(s.Label, s.Factors)
	if v.Run.Method.Runs > 1 {
		cell.Sub = "block " + strconv.Itoa(s.Block)
	}
	return cell
}

func (v *view) goalCell(i int) TableCell {
	g := v.Searching.Goals[i]
	cell := TableCell{Text: g.Name, Sub: "≤ " + unit.Percent(g.LossRatio)}
	if g.LossRatio == 0 {
		cell.Sub = "none"
	}

	if g.MaxDelay > 0 {
		cell.Sub += ", p99 + " + g.MaxDelay.String()
	}

	return cell
}

func throughputCell(v *view, unit string, r analysis.SearchResult) TableCell {
	if r.Throughput == nil {
		return TableCell{Text: "n/a", Long: r.Irregular, Tone: Quiet}
	}

	cell := TableCell{Text: v.text(loadMetric(unit), *r.Throughput)}
	if r.ThroughputBps != nil && unit == record.UnitPackets {
		cell.Sub = v.text(goodput, *r.ThroughputBps)
	}

	if r.Irregular != "" {
		cell.Sub = "irregular"
		cell.Long = r.Irregular
		cell.Tone = Doubt
	}

	return cell
}

func (v *view) rateOr(unit string, load *float64) string {
	if load == nil {
		return "none"
	}
	return v.text(loadMetric(unit), *load)
}

// loadMetric returns the metric that is measured in the given unit of a search's loads.
func loadMetric(unit string) string {
	switch unit {
	case record.UnitBits:
		return goodput
	case record.UnitFlows:
		return flowRate
	}
	return packetRate
}

// standardTable shows the RFC 2544 tests that follow the throughput test (RTT, frame loss, back-to-back
// frames), one row per search.
func standardTable(v *view) Table {
	t := Table{
		ID:    "rfc2544-table",
		Cards: true,
		Columns: columns("RFC 2544", "#Throughput|payload",
			"#RTT at it|p50, p99", "#RTT at 50 %|p50, p99", "#Loss at|greatest", "#Back-to-back|buffer"),
		Caption: "Throughput: of the first goal. RTT: probes beside the load, at the found rate and " +
			"at half of it. Loss: at the greatest load. Back-to-back: frames of the longest burst that was " +
			"forwarded whole, and the buffer time after RFC 9004's correction.",
	}
	for _, s := range v.Searches {
		if len(s.Latency)+len(s.FrameLoss)+len(s.BackToBack) == 0 {
			continue
		}

		loss, burst := none, none
		if len(s.FrameLoss) > 0 {
			loss = TableCell{
				Text: v.text(lossRatio, s.FrameLoss[0].Loss.Median),
				Sub:  "of " + v.text(packetRate, s.FrameLoss[0].Load),
			}
		}

		if len(s.BackToBack) > 0 {
			burst = v.burstCell(s.BackToBack[0])
		}

		t.row(v.searchName(s), throughputCell(v, s.Unit, s.Results[0]), v.latencyAt(s, 1),
			v.latencyAt(s, 0.5), loss, burst)
	}
	return t
}

func (v *view) latencyAt(s analysis.SearchView, share float64) TableCell {
	for _, l := range s.Latency {
		if l.Share != share || l.P50 == nil {
			continue
		}

		cell := TableCell{Text: v.text(loadedP50, l.P50.Median)}
		if l.P99 != nil {
			cell.Sub = v.text(loadedP99, l.P99.Median)
		}

		return cell
	}
	return none
}

func (v *view) burstCell(b analysis.BackToBack) TableCell {
	if b.Frames == nil {
		return TableCell{Text: "none", Long: "no burst was forwarded whole"}
	}

	cell := TableCell{Text: rateText("count", b.Frames.Median)}
	if !b.Limited {
		cell.Text = "≥ " + cell.Text
	}

	if b.CorrectedSeconds != nil {
		cell.Sub = unit.Nanoseconds(*b.CorrectedSeconds * 1e9)
	}

	return cell
}

// lossTable shows the loss at each load of the frame loss test, which decreases the load step by step.
func lossTable(v *view) Table {
	t := Table{
		ID:      "frame-loss-table",
		Folded:  true,
		Caption: "Frame loss by load (RFC 2544, section 26.3).",
		Columns: columns("Frame loss", "#Load|of greatest", "#Rate", "#Loss"),
	}
	for _, s := range v.Searches {
		for _, l := range s.FrameLoss {
			t.row(v.searchName(s), unit.Percent(l.Share), v.text(packetRate, l.Load),
				v.text(lossRatio, l.Loss.Median))
		}
	}
	return t
}

// goalTable shows all attributes of all goals, as RFC 9971 requires.
func goalTable(v *view) Table {
	t := Table{
		ID:      "goal-table",
		Caption: "Search goals, by the names of RFC 9971.",
		Columns: columns("Goal", "#Final trial|duration", "#Duration sum", "#Loss ratio", "#Exceed ratio",
			"#Width", "#Initial trial|duration", "#Added delay|p99, at most"),
	}
	for _, g := range v.Searching.Goals {
		delay := "–"
		if g.MaxDelay > 0 {
			delay = g.MaxDelay.String()
		}

		t.row(g.Name, durationWords(g.FinalDuration), durationWords(g.DurationSum),
			unit.Percent(g.LossRatio), unit.Percent(g.ExceedRatio), unit.Percent(g.Width),
			durationWords(g.InitialDuration), delay)
	}
	return t
}

// stepTable lists every trial of every search.
func stepTable(v *view) Table {
	t := Table{
		ID:      "search-steps",
		Folded:  true,
		Caption: "Every trial of the searches that ended well, in order.",
		Columns: columns("Trial", "Part of", "#Load", "#Duration", "#Loss"),
	}
	for _, s := range v.Searches {
		for _, step := range s.Steps {
			test := step.Test
			if step.Warmup {
				test = "warm-up, does not count"
			}

			t.row(step.Trial, test, v.text(loadMetric(s.Unit), step.Load),
				unit.Significant(step.Seconds, 3)+" s", v.text(lossRatio, step.LossRatio))
		}
	}
	return t
}

// searchWords lists the goals and deviations as lines, for output without room for tables.
func searchWords(v *view) []Item {
	if v.Searching == nil {
		return nil
	}

	var out []Item
	before := []string{"goal ", ": final trials of ", ", duration sum ", ", loss ratio ", ", exceed ratio ",
		", width ", ", initial trials of ", ", p99 of added delay at most "}
	for _, r := range goalTable(v).Rows {
		text := ""
		for i, c := range r.Cells {
			text += around(before[i], strings.TrimPrefix(c.Text, none.Text), "")
		}

		out = append(out, items("search", Quiet, text)...)
	}

	out = append(out, items("search", Quiet, v.Searching.Notes...)...)
	return append(out, items("not RFC 2544", Quiet, v.Searching.Deviations...)...)
}
