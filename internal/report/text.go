package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Text renders a document for a terminal of the given width: like Screen, but with every number, caveat and
// piece of evidence. Colour only repeats what the text states.
func Text(d *analysis.Document, width int, colour bool) string {
	v := newView(d)
	t := newTerminal(width, colour)
	t.sections(fullSections(v, each(resultTables(v), terminalTable)))
	return t.b.String()
}

// fullSections returns the sections of a complete text, in the order of the screen. tables holds the result
// tables.
func fullSections(v *view, tables []Table) []Section {
	h := headOf(v)
	title := runWords(v)
	if v.Run.Status == record.RunDone {
		title += " · " + record.RunDone
	}

	out := outline{headSection(v, title)}
	out.list("Requirements", thresholdItems(v))
	for _, t := range slices.Concat(tables, v.openTables(), briefTables(v)) {
		out.add("", t)
	}

	out.list("Bottleneck", v.verdictItems())
	out.list("Experiments", items("", Plain, each(v.experiments(), func(p diagnosis.Proof) string {
		return strings.Join(v.proofWords(p), "; ")
	})...))
	if v.Searching != nil {
		out.list("How the rate was searched (RFC 9971, preset "+v.Searching.Preset+")", searchWords(v))
	}

	out.list("Latency", findingItems(v))
	out.list("In words", items("", Plain, v.words(h)...))
	out.add("Comparisons", comparisonBlocks(v)...)
	out.list("Scaling", scalingLines(v))
	out.list("Soak", soakLines(v))
	out.list("Ciphers", cipherLines(v))
	out.list("Caution", slices.Concat(h.Alerts, h.Caveats, trialNotes(v, resultTables(v)...)))
	out.list("Not measured", items("", Quiet, skippedLines(v)...))
	for _, p := range v.pictures() {
		out.add("", p)
	}

	out.list(FoundTitle, foundItems(v, false))
	if v.importedFrom() == "" { // chokepoint did not see the nodes of an imported run
		out.add("", Prose{Text: []string{"Observing cost " + unit.Percent(v.Observing.CoreRatio) +
			" of one core (" + unit.Percent(v.Observing.ChargedRatio) + " with the interrupts that were " +
			"charged to it); the five fast sources " + unit.Percent(v.Observing.FastRatio) + "."}})
	}

	return out
}

// paragraphs builds a text whose parts are separated by an empty line.
type paragraphs struct{ b strings.Builder }

// gap ends a paragraph with a single empty line.
func (p *paragraphs) gap() {
	s := p.b.String()
	if s != "" && !strings.HasSuffix(s, "\n\n") {
		p.b.WriteByte('\n')
	}
}

// terminal builds the output for a terminal. Escape sequences are SGR (ECMA-48).
type terminal struct {
	paragraphs
	width  int
	colour bool
}

func newTerminal(width int, colour bool) *terminal {
	return &terminal{width: max(width, 40), colour: colour}
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

// wrap breaks text into lines within the width. The first line begins with the text in first, and every other
// line with the text in rest.
func (t *terminal) wrap(first, rest, text, code string) {
	lead := first
	for _, l := range breakLines(text, t.width-utf8.RuneCountInString(rest)) {
		t.line(lead + t.paint(code, l))
		lead = rest
	}
}

// breakLines breaks text into lines of at most width characters.
func breakLines(text string, width int) []string {
	return broken(printable(text), func(line string) bool { return utf8.RuneCountInString(line) <= width })
}

// broken breaks text between words into lines that fit. A word that does not fit stays whole.
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

// words returns the summary without the sentences about the path.
func (v *view) words(h head) []string {
	ways := each(v.Ways, analysis.Way.Words)
	return filter(append([]string{h.Lead}, h.Points...), func(text string) bool {
		return text != "" && !slices.Contains(ways, text)
	})
}

// sections prints sections one after the other.
func (t *terminal) sections(all []Section) {
	for i, s := range all {
		indent := ""
		if i > 0 && s.Title != "" { // the first section is the head of the output
			indent = "  "
		}

		t.wrap("", "", s.Title, bold)
		for _, b := range s.Blocks {
			switch b := b.(type) {
			case Prose:
				for _, text := range b.Text {
					t.wrap(indent, indent, text, "")
				}
			case Facts:
				t.facts(b)
			case List:
				for _, it := range b.Items {
					t.item("  ", it)
				}
			case Table:
				t.table(b)
			case Figure:
				t.picture(b)
			}
		}

		t.gap()
	}
}

// picture prints a drawing as text, if the terminal is wide enough.
func (t *terminal) picture(f Figure) {
	if widest(f.Text)+2 > t.width {
		return
	}

	t.wrap("", "", f.Title+": "+f.Caption, dim)
	for _, l := range f.Text {
		t.line("  " + l)
	}
}

// Widths of the columns in a list of facts.
const (
	minName   = 12
	maxName   = 23
	minBeside = 60 // minimum width of a terminal in which names are placed beside their values
)

// lines returns the value and the lines below it.
func (f Fact) lines() []string {
	return append([]string{f.Value}, strings.FieldsFunc(f.Below, func(r rune) bool { return r == '\n' })...)
}

// facts prints names, values and asides in columns or, in a narrow terminal, names above values.
func (t *terminal) facts(f Facts) {
	aside := widest(each(f.Items, func(i Fact) string { return i.Aside }))
	if t.width < minBeside {
		indent := "  "
		if f.RunIn {
			indent = ""
		}

		for _, i := range f.Items {
			t.wrap(indent, indent, i.Name+bracket(i.Aside), bold)
			for _, text := range i.lines() {
				t.wrap(indent+"  ", indent+"    ", text, "")
			}
		}
		return
	}

	var best []string
	widestName := widest(each(f.Items, func(i Fact) string { return i.Name }))
	for room := min(widestName, maxName); room >= min(widestName, minName); room-- {
		lines := f.columns(room, t.width-room-aside-6, aside)
		if best == nil || len(lines) < len(best) {
			best = lines
		}
	}

	for _, line := range best {
		if f.RunIn {
			line = t.paint(bold, line[2:2+widestName]) + line[2+widestName:]
		}

		t.line(line)
	}
}

// columns formats facts in columns of the given widths: names, values, asides.
func (f Facts) columns(room, wide, aside int) []string {
	var out []string
	at := func(lines []string, n int) string {
		if n < len(lines) {
			return lines[n]
		}
		return ""
	}
	for _, i := range f.Items {
		names := breakLines(i.Name, room)
		var lines []string
		for _, text := range i.lines() {
			lines = append(lines, breakLines(text, wide)...)
		}

		for n := range max(len(names), len(lines)) {
			right := ""
			if n == 0 {
				right = i.Aside
			}

			out = append(out, fmt.Sprintf("  %-*s  %-*s  %*s", room, at(names, n), wide, at(lines, n), aside,
				right))
		}
	}

	return out
}

func (t *terminal) item(indent string, it Item) {
	text := joined(": ", it.Kind, it.Text) + bracket(strings.Join(it.Evidence, "; "))
	t.wrap(indent+"· ", indent+"  ", text, toneCode(it.Tone))
}

// minLabel is the minimum width at which the name of a cell is readable. Columns are dropped until the names
// have at least the width goodLabel.
const (
	minLabel  = 14
	goodLabel = 20
)

// terminalTable merges columns of the result table so that it fits into 80 characters.
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
			lost.Sub = "" // too wide for the column; the page shows it
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
		t.Columns[5].Head, t.Columns[5].Sub = "Core", "busiest" // no result was compared with the tester
	}

	t.dropEmpty()
	return t
}

// table prints two lines per row: medians, and below them intervals and other details. If the terminal is
// too narrow, it prints a paragraph per row.
func (t *terminal) table(tab Table) {
	t.wrap("", "", tab.Of, bold)
	widths, room := t.fit(&tab)
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

// Lines renders a table for a terminal of the given width: in columns if they fit, else in paragraphs.
func (tab Table) Lines(width int) string {
	t := newTerminal(width, false)
	t.table(tab)
	return t.b.String()
}

// fit drops columns that do not fit. It returns the widths of the columns, and the width available for the
// first one.
func (t *terminal) fit(tab *Table) (widths []int, room int) {
	for {
		widths = columnWidths(*tab)
		room = t.width
		for _, w := range widths[1:] {
			room -= w + 2
		}

		drop := -1
		for i, c := range tab.Columns {
			if c.Drop > 0 && (drop < 0 || c.Drop < tab.Columns[drop].Drop) {
				drop = i
			}
		}

		if drop < 0 || room >= min(widths[0], goodLabel) {
			return widths, room
		}

		tab.delete(drop)
	}
}

func columnWidths(tab Table) []int {
	var widths []int
	for i, c := range tab.Columns {
		texts := []string{c.Head, c.Sub}
		for _, r := range tab.Rows {
			if len(r.Cells) > 1 {
				texts = append(texts, upperLine(r.Cells[i]), r.Cells[i].Pre+r.Cells[i].Sub)
			}
		}

		widths = append(widths, widest(texts))
	}
	return widths
}

// upperLine returns the text of a cell with the marks of its notes.
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
	t.below(tab, widths, each(tab.Columns, sub))
	for _, r := range tab.Rows {
		if len(r.Cells) == 1 {
			t.wrap("", "", r.Cells[0].Text, "")
			continue
		}

		label := []string{upperLine(r.Cells[0])} // keep the spaces, because they align the words
		if utf8.RuneCountInString(label[0]) > widths[0] {
			indent := strings.Repeat(" ", min(len(label[0])-len(strings.TrimLeft(label[0], " ")), 4))
			label = each(breakLines(label[0], widths[0]-len(indent)), func(s string) string {
				return indent + s
			})
		}

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
		t.below(tab, widths, lower)
		for _, line := range label[2:] {
			t.line(t.paint(dim, line))
		}

		for _, n := range r.Notes {
			t.item("  ", n)
		}
	}
}

// below prints the second line of a row unless it is empty.
func (t *terminal) below(tab Table, widths []int, cells []TableCell) {
	if slices.ContainsFunc(cells, func(c TableCell) bool { return c.Text != "" }) {
		t.row(tab, widths, cells, dim)
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
		if len(r.Cells) == 1 { // the rows below include the heading in their names
			continue
		}

		t.wrap("", "  ", cmp.Or(r.Name, upperLine(r.Cells[0])), bold)
		var parts []string
		for i, c := range r.Cells[1:] {
			if c.Text != none.Text && c.Text != "" {
				column := tab.Columns[i+1]
				head, two := strings.CutSuffix(cmp.Or(c.Head, column.Head), ",")
				sub := c.Pre + c.Sub
				if two { // the column has two quantities, such as the core's load and the share of the tester
					sub = around("", sub, " "+column.Sub)
				}

				parts = append(parts, head+" "+c.Text+bracket(sub))
			}
		}

		t.wrap("  ", "  ", joined(" · ", append(parts, r.Cells[0].Sub)...), "")
		for _, n := range r.Notes {
			t.item("  ", n)
		}
	}

	t.gap()
}
