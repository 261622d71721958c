package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/progress"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/report"
	"github.com/chokepoint-lab/chokepoint/internal/userfile"
)

// write writes a result. A failed write, for example to a full disk, becomes the error of the command. If a
// pipe was closed, the command ends silently.
func write(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	if errors.Is(err, syscall.EPIPE) {
		return exitError(codeError)
	}

	if err != nil {
		return fmt.Errorf("write result: %v", err)
	}

	return nil
}

// print writes a result to standard output.
func (s streams) print(text string) error { return write(s.Out, text) }

// put writes a file that create opens, and prints its name. If the file is standard, it prints the content.
func (s streams) put(create func(string) (*userfile.File, error), file string, content []byte) error {
	if file == standard {
		return s.print(string(content))
	}

	if err := userfile.Put(create, file, content); err != nil {
		return err
	}
	return s.print(file + "\n")
}

// builder builds the output of a command.
type builder struct{ strings.Builder }

func (b *builder) printf(format string, args ...any) { fmt.Fprintf(b, format, args...) }

// printLine writes v as JSON on one line.
func printLine(w io.Writer, v any) error { return printIndented(w, v, "") }

func printIndented(w io.Writer, v any, indent string) error {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("encode result: %v", err)
	}

	return write(w, b.String())
}

// document prints a result: indented JSON with --json, else text.
func (p *program) document(v any, text string) error {
	if p.json {
		return printIndented(p.Out, v, "  ")
	}
	return p.print(check.Plain(text))
}

// line prints a result: JSON on one line with --json, else text.
func (p *program) line(v any, text string) error { return p.coloured(v, check.Plain(text)) }

// coloured is like line, but text may contain colours. The caller has removed other control characters.
func (p *program) coloured(v any, text string) error {
	if p.json {
		return printLine(p.Out, v)
	}
	return p.print(text)
}

// printList prints items: one JSON object per line with --json, else a table with the heading head.
func printList[T any](p *program, items []T, head string, row func(T) []any) error {
	var all grid
	if len(items) > 0 && head != "" {
		all = heading(head)
	}

	for _, x := range items {
		all.add(row(x)...)
	}

	return printLines(p, items, layout(all, p.width()))
}

// printLines prints items: one JSON object per line with --json, else text.
func printLines[T any](p *program, items []T, text string) error {
	if !p.json {
		return p.print(text)
	}

	for _, item := range items {
		if err := printLine(p.Out, item); err != nil {
			return err
		}
	}
	return nil
}

// each applies of to each element of list.
func each[T, U any](list []T, of func(T) U) []U {
	var out []U
	for _, x := range list {
		out = append(out, of(x))
	}
	return out
}

// list joins words with commas.
func list(words []string) string { return strings.Join(words, ", ") }

// without returns a copy of items without the elements for which drop is true.
func without[T any](items []T, drop func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(items), drop)
}

// distinct removes duplicates and keeps the order.
func distinct[T comparable](list []T) (out []T) {
	for _, v := range list {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// paragraph joins the lines and puts an empty line before them. It returns "" if there are no lines.
func paragraph(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return "\n" + strings.Join(lines, "\n") + "\n"
}

// grid is a table. It holds rows, and each row holds cells.
type grid [][]string

// heading returns a table with one row. Vertical bars separate its cells in text.
func heading(text string) grid { return grid{strings.Split(text, " | ")} }

func (g *grid) add(cells ...any) {
	*g = append(*g, each(cells, func(c any) string { return fmt.Sprint(c) }))
}

// table formats rows in columns. It passes flags to text/tabwriter.
func table(rows grid, flags uint) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', flags)
	for _, r := range rows {
		line := strings.ReplaceAll(strings.Join(r, "\t"), "\n", " ") // so that a cell cannot look like a row
		fmt.Fprintln(w, check.Plain(line))
	}

	w.Flush() // cannot fail: it writes to memory
	return b.String()
}

// sink returns the output for a run's events: JSON lines, a live view on a terminal, plain lines or, with
// --quiet, only warnings.
func (p *program) sink() progress.Sink {
	if p.quiet {
		return progress.Quiet(p.Err)
	}

	if p.json {
		return progress.JSON(p.Out)
	}

	if f, ok := asTerminal(p.Err); ok {
		return progress.Live(f, registry.Catalogue())
	}

	return progress.Plain(p.Err, registry.Catalogue())
}

// note prints a line of information that is not an error.
func (s streams) note(format string, args ...any) {
	// a lost note does not change the result
	text := check.Plain(fmt.Sprintf(format, args...))
	_, _ = fmt.Fprintf(s.Err, "chokepoint: note: %s\n", indented(text))
}

// indented indents all lines but the first, so that text from others cannot look like a separate line of
// output.
func indented(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") }

// fileWidth is the width of output if there is no terminal.
const fileWidth = 100

// layouts maps formats to functions that render a document for a file.
var layouts = map[string]func(*analysis.Document) ([]byte, error){
	"html": report.HTML, "md": report.Markdown, "csv": report.CSV, "csv-long": report.CSVLong,
	"json": report.JSON, "ministat": report.Ministat, "wg-bench": report.WGBench,
	"benchstat":   func(d *analysis.Document) ([]byte, error) { return report.Benchstat(d), nil },
	"openmetrics": func(d *analysis.Document) ([]byte, error) { return report.OpenMetrics(d), nil },
	"text": func(d *analysis.Document) ([]byte, error) {
		return []byte(report.Text(d, fileWidth, false)), nil
	},
}

// laidOut renders a document for the terminal. It uses the width of the terminal and, unless NO_COLOR is set,
// colours.
func (s streams) laidOut(d *analysis.Document, lay func(*analysis.Document, int, bool) string) string {
	width, _, colours := s.screen()
	return lay(d, cmp.Or(width, fileWidth), colours)
}

// screen returns the width of the terminal on standard output (0 if there is none), and whether it supports
// cursor movement and colours.
func (s streams) screen() (width int, moves, colours bool) {
	f, ok := asTerminal(s.Out)
	if !ok {
		return 0, false, false
	}

	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 {
		width = 80
	}

	name := os.Getenv("TERM")
	moves = name != "" && name != "dumb"
	return width, moves, moves && os.Getenv("NO_COLOR") == ""
}

// width returns the width of the terminal on standard output, or 0 if there is none.
func (s streams) width() int {
	width, _, _ := s.screen()
	return width
}

// hang wraps text to a width (0 means unlimited). The first line starts with head, and the other lines are
// indented by the length of head.
func hang(head, text string, width int) string {
	indent := strings.Repeat(" ", utf8.RuneCountInString(head))
	out := ""
	line := head
	for word := range strings.FieldsSeq(text) {
		longer := line + word
		if width > 0 && utf8.RuneCountInString(longer) > width && line != head {
			out += strings.TrimRight(line, " ") + "\n"
			longer = indent + word
		}

		line = longer + " "
	}

	return out + strings.TrimRight(line, " ") + "\n"
}

// trimmed removes trailing spaces from each line.
func trimmed(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
}

// chartWidth is the length of the longest bar, in characters.
const chartWidth = 40

// bar draws a bar. Its length is the given share of chartWidth.
func bar(share float64) string { return strings.Repeat("█", max(1, int(chartWidth*share+0.5))) }
