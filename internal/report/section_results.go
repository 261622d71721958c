package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/cipher"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// resultSection shows the table of results.
func resultSection(v *view, s *Section) {
	points := headOf(v).Points
	if len(points) > 0 {
		s.add(Points{points})
	}

	s.addTables(append(resultTables(v), flowTables(v)...)...)
}

// resultTables returns the tables of results. If libraries were measured, there is one table for each library
// and one for all other cells, because their numbers are not comparable.
func resultTables(v *view) []Table {
	return v.byLibrary(func(cells []*analysis.Cell) Table { return resultTable(v, cells) })
}

// byLibrary calls table for the cells of each library, and for all other cells.
func (v *view) byLibrary(table func([]*analysis.Cell) Table) (out []Table) {
	for _, library := range append([]string{""}, cipher.Libraries()...) {
		cells := v.ofLibrary(library)
		t := table(cells)
		if len(cells) < len(v.all) {
			t.Of = cmp.Or(around("Library ", library, ""), "Traffic")
			if len(out) > 0 {
				t.ID += "-" + library
			}
		}

		out = append(out, filled(t)...)
	}
	return out
}

// resultTable has one row per cell. Its notes are the cells' caveats and reasons. A note that several cells
// share is shown once below the table, with a mark at each of these cells. It has no marks if it applies to
// all cells.
func resultTable(v *view, cells []*analysis.Cell) Table {
	t := Table{
		ID:      "result-table",
		Cards:   true,
		Caption: resultCaption(v, cells),
		Columns: columns(
			"What was measured", "#Rate|"+rateHead(cells), "#% of baseline", "#% against the default MTU",
			lostHead(cells), "#RTT idle|p50 · p99",
			"#RTT under load|p50 · p99", "#Busiest core|"+coreOwner(cells), "#Of the tester|its own ceiling",
			"#Power|loaded · idle", "#Goodput per W", "#Cycles|"+cycleHead(cells), "#Clock", "Validity"),
	}
	uneven := slices.ContainsFunc(v.all, func(c *analysis.Cell) bool {
		return c.Runs != v.all[0].Runs || c.Failed != 0
	})
	powered := with(cells, powerLoaded)
	owner := coreOwner(cells)
	for _, c := range cells {
		busiest, _ := core(c)
		busy := v.cellOf(c, busiest)
		if busy.Num != nil {
			busy.Text = v.coreText(c, owner, 3)
		}

		cycles := metrics.CyclesPerByte
		if has(c, metrics.CyclesPerOp) { // key operations are not measured per byte
			cycles = metrics.CyclesPerOp
		}

		lost := v.cellOf(c, lossRatio)
		if lost.Head = "Loss"; !packets(c) {
			lost = v.cellOf(c, retransmits)
			lost.Head = "Retransmits"
		}

		power, efficiency := none, none
		if powered && loaded(c) {
			power, efficiency = v.twoLines(c, powerLoaded, "idle ", powerIdle), v.cellOf(c, perWatt)
		}

		row := t.row(v.nameCell(c, uneven), v.bothRates(c), v.shareCell(c.OfBaseline),
			v.shareCell(c.OfDefaultMTU), lost, v.pair(c, "rtt_idle"), v.pair(c, "rtt_loaded"),
			busy, testerCell(c), power, efficiency, v.cellOf(c, cycles),
			v.cellOf(c, metrics.CipherClock), gradeCell(c))
		row.Cell = c
		if c.Grade == evidence.GradeFailed {
			row.Tone = Bad
		}
	}

	t.addNotes(cells)
	t.dropEmpty()
	return t
}

// shareCell shows a rate as a share of another cell's rate, with the difference between the two cells below
// it.
func (v *view) shareCell(s *analysis.Share) TableCell {
	if s == nil {
		return none
	}

	of := strings.TrimPrefix(strings.TrimPrefix(s.Of, "same "), "default ")
	return TableCell{
		Text: unit.Percent(s.Ratio),
		Sub:  of,
		Long: "of " + v.label(s.Cell) + ", paired by block",
	}
}

// twoLines shows a cell's median of the metric upper. Below it, twoLines shows the median of the metric lower
// with the prefix pre.
func (v *view) twoLines(c *analysis.Cell, upper, pre, lower string) TableCell {
	cell := v.cellOf(c, upper)
	cell.Sub = ""
	if x, ok := c.Metrics[lower]; ok {
		cell.Pre, cell.Sub = pre, v.text(lower, x.Median)
		cell.More = number(c, lower)
		cell.Long += "\n" + v.sentence(lower, x)
	}

	return cell
}

// cycleHead returns the unit for the heading of cycles: per byte, per operation, or both.
func cycleHead(all []*analysis.Cell) string {
	var per []string
	for _, of := range []struct{ metric, per string }{{metrics.CyclesPerByte, "byte"},
		{metrics.CyclesPerOp, "operation"}} {
		if with(all, of.metric) {
			per = append(per, of.per)
		}
	}
	return "per " + strings.Join(per, ", ")
}

// rateHead returns the heading of the rates, which says what the rates count.
func rateHead(all []*analysis.Cell) string {
	if len(all) > 0 && every(all, enciphered) {
		return "of the cipher"
	}
	return "goodput or packets"
}

// lostHead returns the heading of the column of losses: retransmitted TCP segments, lost UDP packets, or
// both.
func lostHead(all []*analysis.Cell) string {
	switch {
	case every(all, packets):
		return "#Loss|of UDP"
	case slices.ContainsFunc(all, packets):
		return "#Retransmits|UDP: loss"
	}
	return "#Retransmits|TCP"
}

// testerCell shows the result as a share of the tester's maximum.
func testerCell(c *analysis.Cell) TableCell {
	share := testerShare(c)
	if share == 0 || c.Runs == 0 {
		return none
	}
	return TableCell{Text: unit.Ratio(share), Long: "of " + c.Ceiling.TesterKind}
}

// testerShare returns a cell's rate as a share of the tester's maximum. It returns 0 if this maximum is
// unknown. It also returns 0 if the rate clearly exceeds the measured maximum, because the real one is then
// higher.
func testerShare(c *analysis.Cell) float64 {
	if exceedsTester(c) {
		return 0
	}
	return c.Ceiling.TesterRatio
}

// exceedsTester reports whether a cell's rate clearly exceeds what the tester reached without the router.
func exceedsTester(c *analysis.Cell) bool { return c.Ceiling.TesterRatio > 1.02 }

// dropEmpty deletes the columns in which no row has content.
func (t *Table) dropEmpty() {
	for i := len(t.Columns) - 1; i > 0; i-- {
		if !slices.ContainsFunc(t.Rows, func(r TableRow) bool {
			return len(r.Cells) > i && (r.Cells[i].Text != none.Text && r.Cells[i].Text != "" ||
				r.Cells[i].Sub != "")
		}) {
			t.delete(i)
		}
	}
}

// delete deletes the i-th column.
func (t *Table) delete(i int) {
	t.Columns = slices.Delete(slices.Clone(t.Columns), i, i+1)
	t.Rows = slices.Clone(t.Rows)
	for k, r := range t.Rows {
		if len(r.Cells) > i {
			t.Rows[k].Cells = slices.Delete(slices.Clone(r.Cells), i, i+1)
		}
	}
}

// unknown is shown instead of a number that a trial lacks.
const unknown = "n/a"

// addNotes adds notes for the cells' caveats and reasons, and for missing numbers. Texts that differ only
// in numbers become one note with a range. A reason that applies to a single cell is shown below its row.
func (t *Table) addNotes(cells []*analysis.Cell) {
	var notes sharedNotes
	for row, c := range cells {
		for _, k := range c.Caveats {
			notes.add(row, caveatItem(k), true)
		}

		for _, r := range c.Reasons {
			notes.add(row, reasonItem(c.Grade, r), false)
		}

		for _, cell := range t.Rows[row].Cells {
			why, _, _ := strings.Cut(cell.Long, "\n")
			if cell.Text == unknown && c.Runs > 0 {
				text := strings.Replace(why, ": unavailable: ", ": ", 1)
				notes.add(row, Item{Kind: unknown, Text: text, Tone: Quiet}, true)
			}
		}
	}

	for _, n := range notes {
		if !n.caveat && len(n.rows) == 1 {
			t.Rows[n.rows[0]].Notes = append(t.Rows[n.rows[0]].Notes, n.item)
			continue
		}

		item := n.merged()
		if len(n.rows) == len(cells) && len(cells) > 1 {
			t.Common = append(t.Common, item)
			continue
		}

		for _, row := range n.rows {
			cell := &t.Rows[row].Cells[len(t.Columns)-1]
			if n.caveat {
				cell = &t.Rows[row].Cells[0]
			}

			cell.Mark = append(cell.Mark, len(t.Notes))
		}

		t.Notes = append(t.Notes, item)
	}
}

// says reports whether the table has a note with the same kind and text.
func (t *Table) says(item Item) bool {
	return slices.ContainsFunc(slices.Concat(t.Common, t.Notes), func(n Item) bool {
		return n.Kind == item.Kind && likeText(n.Text, item.Text)
	})
}

// about prefixes the text of each item with its subject.
func about(of string, items []Item) []Item {
	return each(items, func(item Item) Item {
		item.Text = joined(": ", of, item.Text)
		return item
	})
}

// sharedNote collects the rows that have the same note, apart from quantities.
type sharedNote struct {
	item   Item
	caveat bool
	rows   []int
	texts  []string
}

type sharedNotes []*sharedNote

// add adds the item of a row to the note that differs from it only in quantities.
func (all *sharedNotes) add(row int, item Item, caveat bool) {
	i := slices.IndexFunc(*all, func(n *sharedNote) bool {
		return n.item.Kind == item.Kind && n.caveat == caveat && likeText(n.texts[0], item.Text)
	})
	if i < 0 {
		i = len(*all)
		*all = append(*all, &sharedNote{item: item, caveat: caveat})
	}

	n := (*all)[i]
	if !slices.Contains(n.rows, row) {
		n.rows = append(n.rows, row)
	}

	n.texts = append(n.texts, item.Text)
	if n.item.Tone != item.Tone {
		n.item.Tone = Doubt
	}
}

var numberForm = check.Pattern(`[0-9]+(?:\.[0-9]+)?`)

// quantities returns the positions of the numbers in a text. Digits within a word are skipped, because they
// are part of a name, such as a core, a trial or an address.
func quantities(text string) (at [][]int) {
	for _, m := range numberForm().FindAllStringIndex(text, -1) {
		before := text[:m[0]]
		after := strings.TrimLeft(text[m[1]:], ".,;:)%")
		if strings.TrimRight(before, " (") != before || before == "" {
			if after == "" || strings.HasPrefix(after, " ") {
				at = append(at, m)
			}
		}
	}
	return at
}

// replaceQuantities replaces each quantity with the result of say.
func replaceQuantities(text string, say func(i int, number string) string) string {
	var b strings.Builder
	from := 0
	for i, m := range quantities(text) {
		b.WriteString(text[from:m[0]] + say(i, text[m[0]:m[1]]))
		from = m[1]
	}

	return b.String() + text[from:]
}

// likeText reports whether two texts differ only in quantities.
func likeText(a, b string) bool {
	sign := func(int, string) string { return "#" }
	return a == b || replaceQuantities(a, sign) == replaceQuantities(b, sign)
}

// merged returns the note. A range replaces each quantity that differs between texts.
func (n *sharedNote) merged() Item {
	item := n.item
	if len(n.rows) > 1 && len(item.Evidence) > 0 {
		item.Evidence = []string{"numbers of one trial of each cell"} // the table of trials has the rest
	}

	item.Text = ranges(n.texts)
	return item
}

// ranges merges texts that differ only in quantities. Each differing quantity becomes a range.
func ranges(texts []string) string {
	return replaceQuantities(texts[0], func(i int, first string) string {
		low, high := first, first
		for _, text := range texts {
			m := quantities(text)[i]
			x := text[m[0]:m[1]]
			if numberOf(x) < numberOf(low) {
				low = x
			}

			if numberOf(x) > numberOf(high) {
				high = x
			}
		}

		if low == high {
			return low
		}

		return low + "–" + high
	})
}

func numberOf(text string) float64 {
	v, _ := strconv.ParseFloat(text, 64) // text is a quantity
	return v
}

func caveatItem(k record.Caveat) Item { return Item{Kind: k.Kind, Text: k.Text, Tone: Doubt} }

// noted returns the index of an item in a list. If the item is missing, noted appends it.
func noted(list *[]Item, item Item) int {
	same := func(n Item) bool { return n.Kind == item.Kind && n.Text == item.Text }
	i := slices.IndexFunc(*list, same)
	if i >= 0 {
		return i
	}

	*list = append(*list, item)
	return len(*list) - 1
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
	if !slices.ContainsFunc(all, func(c *analysis.Cell) bool { return len(c.Metrics) > 0 }) {
		return "Nothing was measured."
	}

	text := "Medians over the runs" + around("; with each rate its interval: ",
		v.intervalsOf(all, goodput, packetRate, metrics.CipherRate, metrics.CipherOps), "")
	if slices.ContainsFunc(all, func(c *analysis.Cell) bool {
		return c.OfBaseline != nil || c.OfDefaultMTU != nil
	}) {
		text += ". A share is the median of the ratios of paired blocks, which need not be the ratio of " +
			"the two medians"
	}

	if rateHead(all) == "of the cipher" {
		if len(all) > 1 {
			text += around(". All are of ", v.sharedWords(all), "")
		}
		return text + ". Rates are those of the cipher alone, of all threads together."
	}

	window := "warm-up is excluded everywhere."
	if v.importedFrom() != "" {
		window = "each file's window is that of its program."
	}

	text += ". Goodput is TCP payload" + v.countedBy("counted at the receiver, packets are "+
		"those that arrived") + "; up is from client to server, and the direction is that of the data. " +
		"Round-trip times are percentiles of probes; " + window
	if slices.ContainsFunc(all, func(c *analysis.Cell) bool { return c.Consistency != nil }) {
		text += " Evenness is how steady the rate was within a run: very good, good, fair or poor."
	}

	tester := each(v.Tester, func(t record.Ceiling) string {
		return t.Kind + " " + rateText(t.Unit, t.Value)
	})
	return text + around(" The tester's own ceiling, without a router: ", strings.Join(tester, "; "), ".")
}

// sharedWords describes the levels that all cells share. Labels omit them.
func (v *view) sharedWords(all []*analysis.Cell) string {
	var words []string
	f := all[0].Factors
	for _, name := range without(v.sorted(f), v.varying(all)...) {
		d := v.Catalogue.Of(name)
		if d.Leading && !d.Quiet {
			words = append(words, d.Label(f[name]))
		}
	}

	return strings.Join(words, " · ")
}

// countedBy describes where rates were counted. For an imported run, it names the program that counted them.
func (v *view) countedBy(where string) string {
	if v.importedFrom() != "" {
		return ", as " + v.measuredBy() + " counted it"
	}
	return " " + where
}

// nameCell shows a cell's label in its colour. Below the label, it shows how the cell's levels were resolved,
// such as the kind of WireGuard.
func (v *view) nameCell(c *analysis.Cell, runs bool) TableCell {
	cell := cellName(c.Label, c.Factors)
	if v.line != "" && len(v.all) > 1 {
		cell.Class = v.class(c.Factors)
	}

	var parts []string
	for _, name := range sortedKeys(c.Resolved) {
		knob, place, _ := strings.Cut(name, "@")
		switch got := c.Resolved[name]; {
		case strings.EqualFold(got, c.Factors[name]) || got == c.Factors[knob]:
		case place != "":
			parts = append(parts, name+" "+got)
		default:
			parts = append(parts, got)
		}
	}

	if v.Emulated() {
		parts = append(parts, "emulated")
	}

	if runs {
		parts = append(parts, "n = "+fmt.Sprint(c.Runs))
	}

	if c.Failed > 0 {
		parts = append(parts, unit.Count(c.Failed, "trial")+" failed")
	}

	cell.Sub = strings.Join(parts, " · ")
	return cell
}

// rateCell shows the goodput of TCP, the packet rate of UDP, or the number of an imported run.
func rateCell(v *view, c *analysis.Cell) TableCell {
	if !loaded(c) && !enciphered(c) && !has(c, metrics.Number) {
		return TableCell{Tone: Quiet, Text: "idle", Long: "no load: latency of the idle path"}
	}
	return v.cellOf(c, rateMetric(c))
}

// bothRates adds the payload rate to a packet rate.
func (v *view) bothRates(c *analysis.Cell) TableCell {
	cell := rateCell(v, c)
	if packets(c) && has(c, goodput) {
		cell.Sub = joined("; ", cell.Sub, v.short(c, goodput))
	}
	return cell
}

func rateOf(c *analysis.Cell) string {
	switch {
	case enciphered(c):
		return metrics.RateOf(c.Factors)
	case packets(c):
		return packetRate
	}
	return goodput
}

// cellOf shows a metric's median with the interval below it, or why there is none.
func (v *view) cellOf(c *analysis.Cell, metric string) TableCell {
	x, ok := c.Metrics[metric]
	if !ok {
		return missingCell(c.Missing, metric)
	}

	if metric == rttAdded && c.AddedInNoise() {
		return TableCell{Text: noneMeasurable, Long: v.sentence(metric, x)}
	}

	return TableCell{
		Text: v.text(metric, x.Median),
		Sub:  v.spread(metric, x),
		Long: v.sentence(metric, x),
		Num:  number(c, metric),
	}
}

// missingCell shows why a metric is missing, if a reason is known.
func missingCell(missing map[string]string, metric string) TableCell {
	if missing[metric] == "" {
		return none
	}
	return TableCell{Text: unknown, Long: unavailable(missing, metric), Tone: Quiet}
}

func unavailable(missing map[string]string, metric string) string {
	return metrics.Label(metric) + ": unavailable: " + missing[metric]
}

// pair shows p50 and p99 of the distribution whose metrics' names begin with stem.
func (v *view) pair(c *analysis.Cell, stem string) TableCell {
	lower := stem + "_p99_ns"
	cell := v.twoLines(c, stem+"_p50_ns", "p99 ", lower)
	if c.Missing[lower] != "" && !has(c, lower) {
		cell.Sub = "p99 n/a"
		cell.Long += "\n" + unavailable(c.Missing, lower)
	}

	return cell
}

// coreOwner returns the machine whose cores are shown in the column, or "" if it differs between cells.
func coreOwner(all []*analysis.Cell) string {
	owners := distinct(all, func(c *analysis.Cell) string {
		_, whose := core(c)
		return whose
	})
	if len(owners) > 1 {
		return ""
	}
	return strings.Join(owners, "")
}

// coreText formats the load of a cell's busiest core with the given number of digits. It adds the core's
// machine unless the heading names it.
func (v *view) coreText(c *analysis.Cell, owner string, digits int) string {
	busiest, whose := core(c)
	if whose == "" {
		return ""
	}

	text := unit.Significant(100*c.Metrics[busiest].Median, digits) + " %"
	if owner == "" {
		text = whose + " " + text
	}
	return text
}

// gradeCell shows a cell's grade, and the evenness of its rate within the windows. Reasons are shown below
// the row.
func gradeCell(c *analysis.Cell) TableCell {
	cell := graded(c.Grade)
	for _, r := range c.Reasons {
		cell.Long += r.Kind + ": " + r.Text + "\n"
	}

	k := c.Consistency
	if k != nil {
		cell.Pre, cell.Sub = "evenness ", strings.ToLower(k.Word)
		cell.Long += "relative unevenness of the rate inside the windows: " + unit.Percent(k.Ratio)
	}

	return cell
}

// graded shows a grade in its tone.
func graded(grade string) TableCell { return TableCell{Text: grade, Tone: gradeTone(grade)} }

func gradeTone(grade string) Tone {
	switch grade {
	case evidence.GradeValid:
		return Good
	case evidence.GradeFailed:
		return Bad
	case evidence.GradeNotReached:
		return Quiet
	}
	return Doubt
}
