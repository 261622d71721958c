package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"text/tabwriter"

	"golang.org/x/term"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/progress"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/report"
)

// write writes a result. The error of the write is the command's error: a full disk must not look like
// success. If the reader has closed the pipe, nothing more is said.
func write(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	if errors.Is(err, syscall.EPIPE) {
		return &exitError{code: codeError}
	}
	if err != nil {
		return fmt.Errorf("write result: %v", err)
	}
	return nil
}

// printJSON writes an indented document.
func printJSON(w io.Writer, v any) error { return printIndented(w, v, "  ") }

// printLine writes a document on one line.
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

// document prints a command's result: an indented document with --json, else text.
func (p *program) document(v any, text string) error {
	if p.json {
		return printJSON(p.Out, v)
	}
	return write(p.Out, check.Plain(text))
}

// line prints a command's result: a document on one line with --json, else text.
func (p *program) line(v any, text string) error { return p.coloured(v, check.Plain(text)) }

// coloured is line for a text that has no words of others but plain ones, and may have colours.
func (p *program) coloured(v any, text string) error {
	if p.json {
		return printLine(p.Out, v)
	}
	return write(p.Out, text)
}

// printList writes one JSON object per item with --json, else a table of their rows below a head.
func printList[T any](p *program, items []T, head []string, row func(T) []string) error {
	if !p.json {
		var rows [][]string
		if len(items) > 0 && head != nil {
			rows = append(rows, head)
		}
		for _, item := range items {
			rows = append(rows, row(item))
		}
		return write(p.Out, table(rows, 0))
	}
	for _, item := range items {
		if err := printLine(p.Out, item); err != nil {
			return err
		}
	}
	return nil
}

// table lays rows out in columns, with the flags of text/tabwriter.
func table(rows [][]string, flags uint) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', flags)
	for _, r := range rows {
		fmt.Fprintln(w, check.Plain(strings.Join(r, "\t")))
	}
	w.Flush() // to memory: it cannot fail
	return b.String()
}

// sink is where a run's events are shown: as JSON lines with the result, as a live view on a terminal, else
// as plain lines; or, quietly, warnings alone. Only one is ever in use, so that one writer owns the
// terminal.
func (p *program) sink() progress.Sink {
	if p.quiet {
		return progress.Quiet(p.Err)
	}
	if p.json {
		return progress.JSON(p.Out)
	}
	if f, ok := p.Err.(*os.File); ok && p.ErrTTY {
		return progress.Live(f, registry.Catalogue())
	}
	return progress.Plain(p.Err, registry.Catalogue())
}

// note prints something that is worth knowing and is no error, on its own line.
func (s streams) note(format string, args ...any) {
	// a lost note changes no result
	_, _ = fmt.Fprintf(s.Err, "chokepoint: note: %s\n", check.Plain(fmt.Sprintf(format, args...)))
}

// fileWidth is how wide text is laid out where there is no terminal.
const fileWidth = 100

// render lays a document out in one of the formats, for a file.
func render(d *analysis.Document, format string) ([]byte, error) {
	switch format {
	case "html":
		return report.HTML(d)
	case "md":
		return report.Markdown(d)
	case "csv":
		return report.CSV(d)
	case "json":
		return report.JSON(d)
	case "benchstat":
		return report.Benchstat(d), nil
	case "ministat":
		return report.Ministat(d)
	case "parquet":
		return report.Parquet(d)
	case "openmetrics":
		return report.OpenMetrics(d), nil
	case "junit":
		return report.JUnit(d)
	case "wg-bench":
		return report.WGBench(d)
	}
	return []byte(report.Text(d, fileWidth, false)), nil
}

// resultText is a document as text for where the result goes.
func (s streams) resultText(d *analysis.Document) string { return s.laidOut(d, report.Text) }

// laidOut lays a document out in the width and, unless NO_COLOR is set, the colours of a terminal.
func (s streams) laidOut(d *analysis.Document, lay func(*analysis.Document, int, bool) string) string {
	f, ok := s.Out.(*os.File)
	if !ok || !s.OutTTY {
		return lay(d, fileWidth, false)
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 {
		width = 80
	}
	name := os.Getenv("TERM")
	return lay(d, width, os.Getenv("NO_COLOR") == "" && name != "" && name != "dumb")
}
