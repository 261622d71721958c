package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Markdown writes a block to paste into a forum: the result in words, the table with every caveat below it,
// the path as a picture of characters, and the command that made it.
func Markdown(d *analysis.Document) ([]byte, error) {
	v := newView(d)
	h := headOf(v)
	m := &markdown{}
	m.line("**chokepoint " + escape(h.Title) + "**" + around(" — ", escape(h.Lead), ""))
	m.gap()
	m.points(h.Points)
	m.gap()
	if len(h.Verdict) > 0 {
		m.line(diagnosisTitle + ":")
		m.gap()
		m.items(h.Verdict)
	}

	m.items(h.Alerts)
	m.items(pathLines(v))
	tables := resultTables(v)
	for _, t := range slices.Concat(tables, v.openTables()) {
		m.table(t)
	}

	m.items(searchWords(v))
	m.items(scalingLines(v))
	m.items(soakLines(v))
	m.items(cipherLines(v))
	for _, t := range briefTables(v) {
		m.table(t)
	}

	quote := func(s string) string { return "`" + strings.ReplaceAll(s, "`", "'") + "`" }
	for _, t := range thresholdItems(v, quote, escape) {
		m.line("- **" + t.Kind + "**: " + t.Text)
	}

	m.gap()
	m.points(comparisonLines(v))
	m.gap()
	m.items(findingItems(v))
	m.items(h.Caveats)
	m.items(trialNotes(v, tables...))
	skipped := skippedLines(v)
	for i := range v.Skipped {
		skipped[i] = "not measured: " + skipped[i]
	}

	m.points(skipped)
	m.gap()
	for _, p := range v.pictures() {
		m.line(escape(p.Title + ": " + p.Caption))
		m.gap()
		m.fence(p.Text)
	}

	facts := each(h.Meta, func(f Fact) string {
		return strings.ToLower(f.Name[:1]) + f.Name[1:] + " " + escape(f.Value)
	})
	if d.Run.Version != "" {
		facts = append(facts, "chokepoint "+escape(d.Run.Version))
	}

	for _, k := range slices.Sorted(maps.Keys(d.Conditions)) {
		facts = append(facts, escape(k+" "+d.Conditions[k]))
	}

	facts = append(facts, "observing cost "+unit.Percent(d.Observing.CoreRatio)+" of one core")
	m.line("Measured: " + strings.Join(facts, "; ") + ".")
	m.gap()
	m.fence([]string{d.Run.Command})
	return []byte(strings.TrimSpace(m.b.String()) + "\n"), nil
}

// Brief writes the result for a post: one table, or one for each library of ciphers, and at most five lines.
func Brief(d *analysis.Document) ([]byte, error) {
	v := newView(d)
	h := headOf(v)
	m := &markdown{}
	m.line("**chokepoint " + escape(h.Title) + "**" + around(" — ", escape(h.Lead), ""))
	m.gap()
	if len(v.Searches) > 0 { // the result is what was found, not what its last trial carried
		t := searchTable(v)
		t.Caption = ""
		m.table(t)
	} else {
		for _, full := range resultTables(v) {
			m.table(briefTable(full))
		}
	}

	lines := slices.Concat(each(h.Alerts, func(a Item) string { return a.Text }),
		each(h.Verdict, func(x Item) string { return x.Kind + ": " + x.Text }), h.Points)
	m.points(append(lines[:min(len(lines), 4)], strings.Join(v.footWords(v.all), "; ")))
	return []byte(strings.TrimSpace(m.b.String()) + "\n"), nil
}

// briefTable leaves out of a table of results what a post has no room for. The kinds of reasons stand beside
// the validity, and the resolved level beside its name.
func briefTable(full Table) (t Table) {
	t.Of = full.Of
	for range full.Rows {
		t.row()
	}

	shown := []string{"What was measured", "Rate", "RTT idle", "RTT under load", "Validity"}
	for i, c := range full.Columns {
		if !slices.Contains(shown, c.Head) {
			continue
		}

		t.Columns = append(t.Columns, Column{Head: c.Head, Numeric: c.Numeric})
		for k, r := range full.Rows {
			cell := TableCell{Text: r.Cells[i].Text}
			switch c.Head {
			case "Rate", "What was measured":
				cell.Sub = r.Cells[i].Sub
				cell.Num = r.Cells[i].Num
			case "Validity":
				cell.Sub = reasonWords(r.Cell)
			}

			t.Rows[k].Cells = append(t.Rows[k].Cells, cell)
		}
	}

	return t
}

type markdown struct{ paragraphs }

func (m *markdown) line(s string) { m.b.WriteString(s + "\n") }

func (m *markdown) points(texts []string) {
	for _, text := range texts {
		m.line("- " + escape(text))
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
	if t.Of != "" {
		m.line("**" + escape(t.Of) + "**")
		m.gap()
	}

	m.row(each(t.Columns, func(c Column) string { return escape(c.Head + bracket(c.Sub)) }))
	m.row(each(t.Columns, func(c Column) string {
		if c.Numeric {
			return "---:"
		}
		return "---"
	}))
	for _, r := range t.Rows {
		m.row(each(r.Cells, markdownCell))
	}

	m.gap()
	for _, r := range t.Rows {
		for _, n := range about(r.Cells[0].Text, r.Notes) {
			m.item(n)
		}
	}

	for _, n := range about("in all cells", t.Common) {
		m.item(n)
	}

	for i, n := range t.Notes {
		m.line(fmt.Sprintf("- [%s] **%s**: %s", mark(i), escape(n.Kind), escape(n.Text)))
	}

	m.gap()
	if t.Caption != "" {
		m.line(escape(t.Caption))
		m.gap()
	}
}

func (m *markdown) row(fields []string) { m.line("| " + strings.Join(fields, " | ") + " |") }

// markdownCell puts an interval in brackets and anything else behind a dot.
func markdownCell(c TableCell) string {
	text := escape(c.Text)
	sub := escape(c.Pre + c.Sub)
	switch {
	case sub == "":
	case c.Num != nil && c.More == nil:
		text += bracket(sub)
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
	m.line("- **" + escape(it.Kind) + "**: " + escape(it.Text+bracket(strings.Join(it.Evidence, "; "))))
}

// escape keeps text from being read as Markdown or HTML.
func escape(s string) string { return escapes.Replace(printable(s)) }

var escapes = strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`,
	"|", `\|`, "<", "&lt;", ">", "&gt;", "#", `\#`, "~", `\~`, "\n", " ")
