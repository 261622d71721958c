package report

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Text lays the result out for a terminal of the given width: words, the picture of each path, the table with
// every caveat, what was missed and what was not measured. Colour only repeats what words say.
func Text(d *analysis.Document, width int, colour bool) string {
	v := newView(d)
	h := headOf(v)
	t := &terminal{width: max(width, 40), colour: colour}
	if len(v.Ways) > 0 { // what lies between two machines comes first
		for range v.Ways {
			t.wrap("", "", h.Lead, bold)
			h.Lead, h.Points = h.Points[0], h.Points[1:]
		}

		t.gap()
	}

	t.line(t.paint(bold, printable(h.Title)))
	t.wrap("", "", runWords(v), dim)
	t.gap()
	if h.Lead != "" {
		t.wrap("", "", h.Lead, bold)
	}

	for _, p := range h.Points {
		t.wrap("· ", "  ", p, "")
	}

	t.gap()
	t.list(diagnosisTitle, h.Verdict)
	for _, p := range v.pictures() {
		if widest(p.Text)+2 <= t.width {
			t.wrap("", "", p.Title+": "+p.Caption, dim)
			for _, l := range p.Text {
				t.line("  " + l)
			}

			t.gap()
		}
	}

	t.list(FoundTitle, foundItems(v, false))
	t.list("What both ends tell", pathLines(v))
	tables := resultTables(v)
	t.tables(append(each(tables, terminalTable), v.openTables()...))
	if v.Searching != nil {
		t.list("How the rate was searched (RFC 9971, preset "+v.Searching.Preset+")", searchWords(v))
	}

	t.list("Scaling", scalingLines(v))
	t.list("Soak", soakLines(v))
	t.list("Ciphers", cipherLines(v))
	t.tables(briefTables(v))
	plain := func(s string) string { return s }
	t.list("Requirements", thresholdItems(v, plain, plain))
	t.list("Comparisons", items("", Plain, comparisonLines(v)...))
	t.list("Findings", findingItems(v))
	t.list("Mind", append(append(h.Alerts, h.Caveats...), trialNotes(v, tables...)...))
	t.list("Not measured", items("", Quiet, skippedLines(v)...))
	if len(v.Run.ImportedFrom) > 0 { // which nothing of ours observed
		return t.b.String()
	}

	t.wrap("", "", "Observing cost "+unit.Percent(d.Observing.CoreRatio)+" of one core ("+
		unit.Percent(d.Observing.ChargedRatio)+" with the interrupts that were charged to it); the "+
		"five fast sources "+unit.Percent(d.Observing.FastRatio)+".", dim)
	return t.b.String()
}

func runWords(v *view) string {
	where := "lab " + v.Run.Lab
	if len(v.Ways) > 0 {
		where = "two machines"
		for _, n := range v.Nodes {
			if n.Driven != "" && slices.ContainsFunc(v.Topologies, func(t record.Topology) bool {
				return slices.Contains(t.Routers, n.Name)
			}) {
				where = "real machines"
			}
		}
	}

	from := v.Run.ImportedFrom
	if len(from) > 0 {
		where = "measured by " + strings.Join(from, ", ")
	}

	return joined(", ", "run "+v.Run.ID, where, extent(v), v.Run.Status)
}

// paragraphs collects text with an empty line between its parts.
type paragraphs struct{ b strings.Builder }

// gap ends a paragraph, once.
func (p *paragraphs) gap() {
	s := p.b.String()
	if s != "" && !strings.HasSuffix(s, "\n\n") {
		p.b.WriteByte('\n')
	}
}

// terminal collects lines. Escape sequences are SGR of ECMA-48.
type terminal struct {
	paragraphs
	width  int
	colour bool
}

const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
)

func (t *terminal) paint(code, s string) string {
	if !t.colour || code == "" || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func toneCode(tone Tone) string {
	return map[Tone]string{Good: green, Doubt: yellow, Bad: red, Quiet: dim}[tone]
}

func (t *terminal) line(s string) { t.b.WriteString(strings.TrimRight(s, " ") + "\n") }

// wrap breaks text at the width, with what goes before its first line and before the others.
func (t *terminal) wrap(first, rest, text, code string) {
	lead := first
	for _, l := range breakLines(text, t.width-utf8.RuneCountInString(rest)) {
		t.line(lead + t.paint(code, l))
		lead = rest
	}
}

// breakLines breaks text at a number of characters.
func breakLines(text string, width int) []string {
	return broken(printable(text), func(line string) bool { return utf8.RuneCountInString(line) <= width })
}

// broken breaks a text between words into lines that fit; a word that is too long stays whole.
func broken(text string, fits func(line string) bool) (lines []string) {
	for w := range strings.FieldsSeq(text) {
		last := len(lines) - 1
		if last >= 0 && fits(lines[last]+" "+w) {
			lines[last] += " " + w
		} else {
			lines = append(lines, w)
		}
	}
	return lines
}

func widest(lines []string) int {
	n := 0
	for _, l := range lines {
		n = max(n, utf8.RuneCountInString(l))
	}
	return n
}

func (t *terminal) list(title string, items []Item) {
	if len(items) == 0 {
		return
	}

	t.line(t.paint(bold, title))
	for _, it := range items {
		t.item("  ", it)
	}

	t.gap()
}

func (t *terminal) item(indent string, it Item) {
	text := joined(": ", it.Kind, it.Text) + bracket(strings.Join(it.Evidence, "; "))
	t.wrap(indent+"· ", indent+"  ", text, toneCode(it.Tone))
}

// minLabel bounds the room in which the name of a cell can be read.
const minLabel = 14

// terminalTable joins the columns of the result table until they fit into 80 characters.
func terminalTable(full Table) Table {
	t := Table{Of: full.Of, Caption: full.Caption, Notes: full.Notes, Common: full.Common}
	t.Columns = columns("Measured",
		"#Rate|interval", "#RTT idle|p50, p99", "#RTT load|p50, p99", "#Loss,|retrans.", "#Core,|of tester",
		"#Per watt|load, idle", "#Cycles", "#Clock", "Validity|evenness")
	for _, r := range full.Rows {
		at := func(heads ...string) TableCell {
			for i, c := range full.Columns {
				if slices.Contains(heads, c.Head) {
					cell := r.Cells[i]
					cell.Pre = ""
					return cell
				}
			}
			return none
		}
		below := func(head string) string {
			c := at(head)
			return joined(", ", strings.TrimPrefix(c.Text, none.Text), c.Sub)
		}
		lost := at("Retransmits", "Loss")
		busy := at("Busiest core")
		efficiency := at("Goodput per W")
		busy.Sub, efficiency.Sub = below("Of the tester"), below("Power")
		if utf8.RuneCountInString(lost.Sub) > 9 {
			lost.Sub = "" // no room; the report has it
		}

		row := t.row(r.Cells[0], at("Rate"), at("RTT idle"), at("RTT under load"), lost, busy, efficiency,
			at("Cycles"), at("Clock"), at("Validity"))
		row.Tone = r.Tone
		row.Notes = r.Notes
	}

	for _, c := range full.Columns {
		if c.Head == "Cycles" {
			t.Columns[7].Sub = c.Sub
		}
	}

	if !slices.ContainsFunc(t.Rows, func(r TableRow) bool { return r.Cells[5].Sub != "" }) {
		t.Columns[5].Head, t.Columns[5].Sub = "Core", "busiest" // nothing was held against a tester
	}

	t.dropEmpty()
	return t
}

func (t *terminal) tables(all []Table) {
	for _, tab := range all {
		t.table(tab)
		t.gap()
	}
}

// table prints two lines per row, medians above and what belongs to them below, if the terminal is wide
// enough; else a paragraph per row.
func (t *terminal) table(tab Table) {
	t.wrap("", "", tab.Of, bold)
	widths := columnWidths(tab)
	room := t.width
	for _, w := range widths[1:] {
		room -= w + 2
	}

	if room >= minLabel {
		widths[0] = min(widths[0], room)
		t.columns(tab, widths)
	} else {
		t.stacked(tab)
	}

	for _, n := range about("in all cells", tab.Common) {
		t.item("", n)
	}

	for i, n := range tab.Notes {
		t.wrap("["+mark(i)+"] ", "    ", n.Kind+": "+n.Text, yellow)
	}

	t.gap()
	t.wrap("", "", tab.Caption, dim)
}

func columnWidths(tab Table) []int {
	var widths []int
	for i, c := range tab.Columns {
		texts := []string{c.Head, c.Sub}
		for _, r := range tab.Rows {
			texts = append(texts, upperLine(r.Cells[i]), r.Cells[i].Pre+r.Cells[i].Sub)
		}

		widths = append(widths, widest(texts))
	}
	return widths
}

// upperLine returns the text of a cell with its marks.
func upperLine(c TableCell) string {
	if len(c.Mark) == 0 {
		return c.Text
	}
	return c.Text + " [" + strings.Join(each(c.Mark, mark), "") + "]"
}

func (t *terminal) columns(tab Table, widths []int) {
	head := func(c Column) TableCell { return TableCell{Text: c.Head} }
	sub := func(c Column) TableCell { return TableCell{Text: c.Sub} }
	t.row(tab, widths, each(tab.Columns, head), bold)
	t.row(tab, widths, each(tab.Columns, sub), dim)
	for _, r := range tab.Rows {
		label := breakLines(upperLine(r.Cells[0]), widths[0])
		label = append(label, breakLines(r.Cells[0].Pre+r.Cells[0].Sub, widths[0])...)
		for len(label) < 2 {
			label = append(label, "")
		}

		upper := []TableCell{{Text: label[0], Tone: r.Tone}}
		lower := []TableCell{{Text: label[1]}}
		for _, c := range r.Cells[1:] {
			upper = append(upper, TableCell{Text: upperLine(c), Tone: c.Tone})
			lower = append(lower, TableCell{Text: c.Pre + c.Sub})
		}

		t.row(tab, widths, upper, "")
		t.row(tab, widths, lower, dim)
		for _, line := range label[2:] {
			t.line(t.paint(dim, line))
		}

		for _, n := range r.Notes {
			t.item("  ", n)
		}
	}
}

func (t *terminal) row(tab Table, widths []int, cells []TableCell, code string) {
	line := ""
	for i, c := range cells {
		text := printable(c.Text)
		pad := strings.Repeat(" ", max(widths[i]-utf8.RuneCountInString(text), 0))
		text = t.paint(cmp.Or(toneCode(c.Tone), code), text)
		if tab.Columns[i].Numeric {
			text, pad = pad, text
		}

		line += text + pad + "  "
	}

	t.line(line)
}

func (t *terminal) stacked(tab Table) {
	for _, r := range tab.Rows {
		t.wrap("", "  ", upperLine(r.Cells[0]), bold)
		var parts []string
		for i, c := range r.Cells[1:] {
			if c.Text != none.Text && c.Text != "" {
				parts = append(parts, cmp.Or(c.Head, tab.Columns[i+1].Head)+" "+c.Text+bracket(c.Pre+c.Sub))
			}
		}

		t.wrap("  ", "  ", joined(" · ", append(parts, r.Cells[0].Sub)...), "")
		for _, n := range r.Notes {
			t.item("  ", n)
		}
	}

	t.gap()
}
