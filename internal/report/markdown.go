package report

import (
	"fmt"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// Markdown renders the run for a forum post. It contains the result in words, the table with its caveats, the
// path as text, and the command that repeats the run.
func Markdown(d *analysis.Document) ([]byte, error) {
	v := newView(d)
	m := &markdown{}
	m.sections(fullSections(v, resultTables(v)))
	facts := each(headOf(v).Meta, func(f Fact) string {
		return strings.ToLower(f.Name[:1]) + f.Name[1:] + " " + escape(f.Value)
	})
	if d.Run.Version != "" {
		facts = append(facts, "chokepoint "+escape(d.Run.Version))
	}

	for _, k := range sortedKeys(d.Conditions) {
		facts = append(facts, escape(k+" "+d.Conditions[k]))
	}

	m.line("Measured: " + strings.Join(facts, "; ") + ".")
	m.gap()
	m.fence([]string{d.Run.Command})
	return []byte(strings.TrimSpace(m.b.String()) + "\n"), nil
}

// Brief renders the content of Screen as Markdown for a forum post, with the run, the machine and the date.
func Brief(d *analysis.Document) ([]byte, error) {
	v := newView(d)
	m := &markdown{}
	m.sections(screenSections(v, 0))
	m.points([]string{strings.Join(v.footWords(v.all), "; ")})
	return []byte(strings.TrimSpace(m.b.String()) + "\n"), nil
}

type markdown struct{ paragraphs }

func (m *markdown) line(s string) { m.b.WriteString(s + "\n") }

// sections writes sections one after the other. The first section consists of a title and text.
func (m *markdown) sections(all []Section) {
	for _, s := range all {
		if s.Title != "" {
			m.line("**" + escape(s.Title) + "**")
			m.gap()
		}

		for _, b := range s.Blocks {
			switch b := b.(type) {
			case Prose:
				for _, text := range b.Text {
					m.line(escape(text))
					m.gap()
				}
			case Facts:
				for _, f := range b.Items {
					m.line("- **" + escape(f.Name) + "**: " + escape(joined(". ", f.Value+bracket(f.Aside),
						joined("; ", f.lines()...))))
				}
			case List:
				m.items(b.Items)
			case Table:
				m.table(b)
			case Figure:
				m.line(escape(b.Title + ": " + b.Caption))
				m.gap()
				m.fence(b.Text)
			}
		}

		m.gap()
	}
}

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

// table writes a Markdown table. Each field contains a median with its interval and other details.
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
		cells := r.Cells
		switch {
		case len(cells) == 1: // the rows below include the heading in their names
			continue
		case r.Name != "":
			cells = append([]TableCell{{Text: r.Name}}, cells[1:]...)
		}

		m.row(each(cells, markdownCell))
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

// markdownCell appends an interval in parentheses, and other details after a dot.
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
	text := it.Text + bracket(strings.Join(it.Evidence, "; "))
	m.line("- " + around("**", escape(it.Kind), "**: ") + escape(text))
}

// escape escapes text so that it is not interpreted as Markdown, HTML, or GitHub's formulas and mentions.
func escape(s string) string {
	return escapes.Replace(mention().ReplaceAllString(printable(s), "$1@\u2060")) // invisible word joiner
}

var (
	mention = check.Pattern(`(^|\W)@`)
	escapes = strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`,
		"|", `\|`, "<", "&lt;", ">", "&gt;", "#", `\#`, "~", `\~`, "$", "&#36;", "\n", " ")
)
