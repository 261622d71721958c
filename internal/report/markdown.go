package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
)

// Markdown is a block to paste into a forum: the result in words, the table with every caveat below it, the
// path as a picture of characters, and the command that made it.
func Markdown(d *analysis.Document) ([]byte, error) {
	v := newView(d)
	h := headOf(v)
	m := &markdown{}
	m.line("**chokepoint " + escape(h.Title) + "**" + dash(h.Lead))
	m.gap()
	for _, p := range h.Points {
		m.line("- " + escape(p))
	}
	m.gap()
	m.items(h.Alerts)
	table := resultTable(v)
	if len(table.Rows) > 0 {
		m.table(table)
	}
	m.searches(v)
	m.items(scalingLines(v))
	m.items(soakLines(v))
	if load, ok := underLoadTable(v); ok && askedResponsiveness(v) {
		m.table(load)
	}
	for _, flows := range flowTables(v) {
		m.table(flows)
	}
	m.thresholds(v)
	m.comparisons(v)
	m.items(findingItems(v))
	m.items(h.Caveats)
	m.items(trialNotes(v, table))
	m.skipped(v)
	for _, b := range pathSection(v).Blocks {
		if p, ok := b.(Picture); ok {
			m.line(escape(p.Title + ": " + p.Sub))
			m.gap()
			m.fence(p.Text)
		}
	}
	var facts []string
	for _, f := range h.Meta {
		facts = append(facts, strings.ToLower(f.Name[:1])+f.Name[1:]+" "+escape(f.Value))
	}
	if d.Run.Version != "" {
		facts = append(facts, "chokepoint "+escape(d.Run.Version))
	}
	for _, k := range slices.Sorted(maps.Keys(d.Conditions)) {
		facts = append(facts, escape(k+" "+d.Conditions[k]))
	}
	facts = append(facts, "observing cost "+v.text("_ratio", d.Observing.CoreRatio)+" of one core")
	m.line("Measured: " + strings.Join(facts, "; ") + ".")
	m.gap()
	m.fence([]string{d.Run.Command})
	return []byte(strings.TrimSpace(m.b.String()) + "\n"), nil
}

type markdown struct{ b strings.Builder }

func (m *markdown) line(s string) { m.b.WriteString(s + "\n") }

// gap ends a paragraph, once.
func (m *markdown) gap() {
	if s := m.b.String(); s != "" && !strings.HasSuffix(s, "\n\n") {
		m.b.WriteByte('\n')
	}
}

func (m *markdown) fence(lines []string) {
	m.line("```text")
	for _, l := range lines {
		m.line(strings.ReplaceAll(printable(l), "```", "'''"))
	}
	m.line("```")
	m.gap()
}

// table prints medians with what belongs to them in one field each.
func (m *markdown) table(t Table) {
	var head, rule []string
	for _, c := range t.Columns {
		text := c.Head
		if c.Sub != "" {
			text += " (" + c.Sub + ")"
		}
		head = append(head, escape(text))
		rule = append(rule, map[bool]string{true: "---:", false: "---"}[c.Numeric])
	}
	m.line("| " + strings.Join(head, " | ") + " |")
	m.line("| " + strings.Join(rule, " | ") + " |")
	for _, r := range t.Rows {
		var fields []string
		for _, c := range r.Cells {
			fields = append(fields, markdownCell(c))
		}
		m.line("| " + strings.Join(fields, " | ") + " |")
	}
	m.gap()
	for _, r := range t.Rows {
		for _, n := range r.Notes {
			n.Text = r.Cells[0].Text + ": " + n.Text
			m.item(n)
		}
	}
	for i, n := range t.Notes {
		m.line(fmt.Sprintf("- [%s] **%s**: %s", mark(i), escape(n.Kind), escape(n.Text)))
	}
	m.gap()
	m.line(escape(t.Caption))
	m.gap()
}

// markdownCell puts an interval in brackets and anything else behind a dot.
func markdownCell(c TableCell) string {
	text, sub := escape(c.Text), escape(c.Pre+c.Sub)
	switch {
	case sub == "":
	case c.Num != nil && c.More == nil:
		text += " (" + sub + ")"
	default:
		text += " · " + sub
	}
	for _, n := range c.Mark {
		text += " [" + mark(n) + "]"
	}
	return text
}

func (m *markdown) items(items []Item) {
	for _, it := range items {
		m.item(it)
	}
	m.gap()
}

func (m *markdown) item(it Item) {
	text := "- **" + escape(it.Kind) + "**: " + escape(it.Text)
	if len(it.Evidence) > 0 {
		text += " (" + escape(strings.Join(it.Evidence, "; ")) + ")"
	}
	m.line(text)
}

func (m *markdown) searches(v *view) {
	for _, b := range v.searchTables() {
		if t, ok := b.(Table); ok && !t.Folded {
			m.table(t)
		}
	}
	m.items(searchWords(v))
}

func (m *markdown) thresholds(v *view) {
	for _, t := range v.Thresholds {
		word := "met"
		if !t.Met {
			word = "missed"
		}
		text := "- **" + word + "**: `" + strings.ReplaceAll(t.Requirement, "`", "'") + "`"
		if len(t.Factors) > 0 {
			text += " in " + escape(v.label(t.Factors))
		}
		if t.Value != 0 || t.Met {
			text += ", measured " + v.measured(t)
		}
		if t.Reason != "" {
			text += ": " + escape(t.Reason)
		}
		m.line(text)
	}
	m.gap()
}

func (m *markdown) comparisons(v *view) {
	for _, s := range comparisonLines(v) {
		m.line("- " + escape(s))
	}
	m.gap()
}

func (m *markdown) skipped(v *view) {
	for _, k := range v.Skipped {
		m.line("- not measured: " + escape(v.skippedWords(k.Factors)+": "+k.Reason))
	}
	for _, c := range v.Run.Cuts {
		m.line("- cut to fit the time budget: " + escape(c))
	}
	m.gap()
}

func dash(s string) string {
	if s == "" {
		return ""
	}
	return " — " + escape(s)
}

// escape keeps text from being read as Markdown or HTML.
func escape(s string) string {
	return strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`,
		"|", `\|`, "<", "&lt;", ">", "&gt;", "#", `\#`, "~", `\~`, "\n", " ").Replace(printable(s))
}
