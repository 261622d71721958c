package report

import (
	"strings"
	"unicode/utf8"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
)

// Text is the result for a terminal of the given width: words, the picture of each path, the table with
// every caveat, what was missed and what was not measured. Colour only repeats what words say.
func Text(d *analysis.Document, width int, colour bool) string {
	v := newView(d)
	h := headOf(v)
	t := &terminal{width: max(width, 40), colour: colour}
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
	for _, p := range v.pictures() {
		if widest(p.Text)+2 <= t.width {
			t.wrap("", "", p.Title+": "+p.Sub, dim)
			for _, l := range p.Text {
				t.line("  " + l)
			}
			t.gap()
		}
	}
	table := resultTable(v)
	if len(table.Rows) > 0 {
		t.table(terminalTable(v, table))
		t.gap()
	}
	for _, tab := range v.searchTables() {
		if !tab.Folded {
			t.table(tab)
			t.gap()
		}
	}
	if v.Searching != nil {
		t.list("How the rate was searched (RFC 9971, preset "+v.Searching.Preset+")", searchWords(v))
	}
	t.list("Scaling", scalingLines(v))
	t.list("Soak", soakLines(v))
	for _, tab := range briefTables(v) {
		t.table(tab)
		t.gap()
	}
	plain := func(s string) string { return s }
	t.list("Requirements", thresholdItems(v, plain, plain))
	t.list("Comparisons", lineItems("", Plain, comparisonLines(v)))
	t.list("Findings", findingItems(v))
	t.list("Mind", append(append(h.Alerts, h.Caveats...), trialNotes(v, table)...))
	t.list("Not measured", lineItems("", Quiet, skippedLines(v)))
	t.wrap("", "", "Observing cost "+v.text("_ratio", d.Observing.CoreRatio)+" of one core ("+
		v.text("_ratio", d.Observing.ChargedRatio)+" with the interrupts that were charged to it); the "+
		"five fast sources "+v.text("_ratio", d.Observing.FastRatio)+".", dim)
	return t.b.String()
}

func runWords(v *view) string {
	words := "run " + v.Run.ID + ", lab " + v.Run.Lab + ", " + extent(v)
	if v.Run.Status != "" {
		words += ", " + v.Run.Status
	}
	return words
}

func lineItems(kind string, tone Tone, lines []string) []Item {
	var out []Item
	for _, l := range lines {
		out = append(out, Item{Kind: kind, Text: l, Tone: tone})
	}
	return out
}

// paragraphs are text with an empty line between them.
type paragraphs struct{ b strings.Builder }

// gap ends a paragraph, once.
func (p *paragraphs) gap() {
	if s := p.b.String(); s != "" && !strings.HasSuffix(s, "\n\n") {
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

// breakLines breaks text between words; a word that is too long stays whole.
func breakLines(text string, width int) []string {
	var lines []string
	line := ""
	for _, w := range strings.Fields(printable(text)) {
		switch {
		case line == "":
			line = w
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(w) > width:
			lines = append(lines, line)
			line = w
		default:
			line += " " + w
		}
	}
	if line != "" {
		lines = append(lines, line)
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
	text := it.Text
	if it.Kind != "" {
		text = it.Kind + ": " + text
	}
	text += bracket(strings.Join(it.Evidence, "; "))
	t.wrap(indent+"· ", indent+"  ", text, toneCode(it.Tone))
}
