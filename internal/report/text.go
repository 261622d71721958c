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
	for _, b := range pathSection(v).Blocks {
		if p, ok := b.(Picture); ok && widest(p.Text)+2 <= t.width {
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
	t.searches(v)
	t.list("Scaling", scalingLines(v))
	t.list("Soak", soakLines(v))
	if load, ok := underLoadTable(v); ok && askedResponsiveness(v) {
		t.table(load)
		t.gap()
	}
	for _, flows := range flowTables(v) {
		t.table(flows)
		t.gap()
	}
	t.requirements(v)
	t.list("Comparisons", lineItems(comparisonLines(v)))
	t.list("Findings", findingItems(v))
	t.list("Mind", append(append(h.Alerts, h.Caveats...), trialNotes(v, table)...))
	t.skipped(v)
	t.wrap("", "", "Observing cost "+v.text("_ratio", d.Observing.CoreRatio)+" of one core ("+
		v.text("_ratio", d.Observing.ChargedRatio)+
		" with the interrupts that were charged to it); the five fast sources "+
		v.text("_ratio", d.Observing.FastRatio)+".", dim)
	return t.b.String()
}

// searches prints the tables of results and, in words, how they were got.
func (t *terminal) searches(v *view) {
	for _, b := range v.searchTables() {
		if tab, ok := b.(Table); ok && !tab.Folded {
			t.table(tab)
			t.gap()
		}
	}
	t.list("How the rate was searched (RFC 9971, preset "+presetOf(v)+")", searchWords(v))
}

func presetOf(v *view) string {
	if v.Searching == nil {
		return ""
	}
	return v.Searching.Preset
}

func runWords(v *view) string {
	words := "run " + v.Run.ID + ", lab " + v.Run.Lab + ", " + extent(v)
	if v.Run.Status != "" {
		words += ", " + v.Run.Status
	}
	return words
}

func lineItems(lines []string) []Item {
	var out []Item
	for _, l := range lines {
		out = append(out, Item{Text: l})
	}
	return out
}

// terminal collects lines. Escape sequences are SGR of ECMA-48.
type terminal struct {
	b      strings.Builder
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

func (t *terminal) gap() {
	if s := t.b.String(); s != "" && !strings.HasSuffix(s, "\n\n") {
		t.b.WriteByte('\n')
	}
}

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
	if len(it.Evidence) > 0 {
		text += " (" + strings.Join(it.Evidence, "; ") + ")"
	}
	code := toneCode(it.Tone)
	t.wrap(indent+"· ", indent+"  ", text, code)
}

func (t *terminal) requirements(v *view) {
	var items []Item
	for _, r := range v.Thresholds {
		it := Item{Kind: "met", Text: r.Requirement, Tone: Good}
		if !r.Met {
			it.Kind, it.Tone = "missed", Bad
		}
		if len(r.Factors) > 0 {
			it.Text += " in " + v.label(r.Factors)
		}
		if r.Value != 0 || r.Met {
			it.Text += ", measured " + v.measured(r)
		}
		if r.Reason != "" {
			it.Text += ": " + r.Reason
		}
		items = append(items, it)
	}
	t.list("Requirements", items)
}

func (t *terminal) skipped(v *view) {
	var items []Item
	for _, k := range v.Skipped {
		items = append(items, Item{Text: v.skippedWords(k.Factors) + ": " + k.Reason, Tone: Quiet})
	}
	for _, c := range v.Run.Cuts {
		items = append(items, Item{Text: "cut to fit the time budget: " + c, Tone: Quiet})
	}
	t.list("Not measured", items)
}
