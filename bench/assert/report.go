package main

import (
	"flag"
	"fmt"
	"html"
	"io"
	"os"
	"regexp"
	"strings"
)

// external finds what a self-contained page must not have: anything that is loaded from elsewhere. Links
// for people to follow are fine.
var external = regexp.MustCompile(`(?i)(src|srcset|data|poster)\s*=\s*["']?\s*(https?:)?//|<link[^>]+href\s*=\s*["']?\s*(https?:)?//|@import|url\(\s*["']?\s*(https?:)?//`)

func reportCommand(args []string, _ io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("report", flag.ContinueOnError)
	document := flags.String("document", "", "output of show --json")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("want one report, got %q", flags.Args())
	}
	doc, err := parseDocument(*document)
	if err != nil {
		return err
	}
	page, err := os.ReadFile(flags.Arg(0))
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "note: report of %d bytes\n", len(page))
	return checkReport(doc, string(page)).err()
}

func checkReport(doc document, page string) (f faults) {
	m := external.FindString(page)
	f.must(m == "", "report loads something from elsewhere: %q", m)
	text := html.UnescapeString(page)
	must := func(want, format string, args ...any) { f.must(strings.Contains(text, want), format, args...) }
	must(doc.Run.ID, "report lacks %q of the run", doc.Run.ID)
	must(doc.Run.Seed, "report lacks %q of the run", doc.Run.Seed)
	for _, c := range doc.Cells {
		must(c.Label, "report lacks cell %q", c.Label)
		for _, r := range c.Reasons {
			must(r.Text, "report lacks the reason %q of cell %q", r.Text, c.Label)
		}
	}
	return f
}
