package main

import (
	"fmt"
	"os"

	"golang.org/x/term"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/report"
)

// fileWidth is how wide text is laid out where there is no terminal.
const fileWidth = 100

// render lays a document out in one of the formats, for a file.
func render(d *analysis.Document, format string) ([]byte, error) {
	switch format {
	case formatHTML:
		return report.HTML(d)
	case formatMD:
		return report.Markdown(d)
	case formatCSV:
		return report.CSV(d)
	case formatJSON:
		return report.JSON(d)
	case formatText:
		return []byte(report.Text(d, fileWidth, false)), nil
	}
	return nil, fmt.Errorf("render run %s: unknown format %q", d.Run.ID, format)
}

// resultText is a document as text for where the result goes: in the width and, unless NO_COLOR is set, the
// colours of a terminal.
func (s streams) resultText(d *analysis.Document) string {
	f, ok := s.Out.(*os.File)
	if !ok || !s.OutTTY {
		return report.Text(d, fileWidth, false)
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 {
		width = 80
	}
	name := os.Getenv("TERM")
	return report.Text(d, width, os.Getenv("NO_COLOR") == "" && name != "" && name != "dumb")
}
