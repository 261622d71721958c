package report

import (
	"fmt"
	"slices"
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

	m.block("Measured: " + strings.Join(facts, "; ") + ".")
	m.fence([]string{d.Run.Command})
	return m.text(), nil
}

// Brief renders the content of Screen as Markdown for a forum post, with the run, the machine and the date.
func Brief(d *analysis.Document) ([]byte, error) {
	v := newView(d)
	m := &markdown{}
	m.sections(screenSections(v, 0))
	m.points([]string{strings.Join(v.footWords(v.all), "; ")})
	return m.text(), nil
}

type markdown struct {
	paragraphs
	picture func(Figure) // writes a figure; nil: as text
}

func (m *markdown) text() []byte { return []byte(strings.TrimSpace(m.b.String()) + "\n") }

func (m *markdown) line(s string) { m.b.WriteString(s + "\n") }

// block writes Markdown between empty lines, unless it is "".
func (m *markdown) block(text string) {
	if text != "" {
		m.gap()
		m.line(text)
		m.gap()
	}
}

func (m *markdown) paragraph(text string) { m.block(escape(text)) }

// title writes the title of a section or list.
func (m *markdown) title(text string) { m.block(around("**", escape(text), "**")) }

// sections writes sections one after the other. The first section consists of a title and text.
func (m *markdown) sections(all []Section) {
	for _, s := range all {
		m.title(s.Title)
		m.blocks(s.Blocks)
	}
}

// blocks writes blocks. It omits panels, and the tables behind charts.
func (m *markdown) blocks(blocks []Block) {
	for _, b := range blocks {
		switch b := b.(type) {
		case Prose:
			for _, text := range b.Text {
				m.paragraph(text)
			}
		case Points:
			m.points(b.Text)
		case Facts:
			m.title(b.Title)
			for _, f := range b.Items {
				value := f.Value + f.Missing + bracket(f.Aside)
				below := strings.ReplaceAll(f.Below, "\n", "; ")
				m.item(Item{Kind: f.Name, Text: joined(". ", value, below)})
			}
		case List:
			m.title(b.Title)
			m.items(b.Items)
		case Table:
			if !b.Folded {
				m.table(b)
			}
		case Figure:
			if m.picture != nil {
				m.picture(b)
			} else {
				m.paragraph(b.Title + ": " + b.Caption)
				m.fence(b.Text)
			}
		case Fold:
			if !slices.ContainsFunc(b.Blocks, isFigure) {
				m.title(b.Title)
			}

			m.blocks(b.Blocks)
		}

		m.gap()
	}
}

func isFigure(b Block) bool { return b.kind() == Figure{}.kind() }

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
	m.title(t.Of)
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
	m.paragraph(t.Caption)
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
