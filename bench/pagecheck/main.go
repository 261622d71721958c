// Command pagecheck looks at a report the way its readers do: it opens the page in headless Chromium at the
// width of a telephone and of a desk, light and dark, keeps a picture of each, and demands that nothing
// overflows, that nothing is fetched, and that every number shown equals the document. It ends with 1 on
// any difference.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

const usage = "usage: pagecheck REPORT.html OUTDIR [DOCUMENT.json]"

func main() {
	if len(os.Args) < 3 || len(os.Args) > 4 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	document := ""
	if len(os.Args) == 4 {
		document = os.Args[3]
	}
	program := os.Getenv("CHROMIUM")
	if program == "" {
		program = "chromium"
	}
	if err := run(ctx, program, os.Args[1], os.Args[2], document); err != nil {
		fmt.Fprintln(os.Stderr, "pagecheck: error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, program, page, dir, document string) (err error) {
	page, err = filepath.Abs(page)
	if err != nil {
		return err
	}
	if _, err := os.Stat(page); err != nil {
		return err
	}
	var want map[string]float64
	if document != "" {
		if want, err = readNumbers(document); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	b, err := startBrowser(ctx, program)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	address := (&url.URL{Scheme: "file", Path: page}).String()
	var faults []error
	for _, width := range []int{390, 1280} {
		for _, theme := range []string{"light", "dark"} {
			found, err := look(b, address, dir, width, theme, want)
			if err != nil {
				return err
			}
			faults = append(faults, found...)
		}
	}
	for _, a := range b.fetched {
		if a != address && a != "about:blank" {
			faults = append(faults, fmt.Errorf("the page fetched %s", a))
		}
	}
	return errors.Join(faults...)
}

// look opens the page once, keeps its picture and returns what is wrong.
func look(b *browser, address, dir string, width int, theme string, want map[string]float64) ([]error,
	error) {
	if err := b.show(address, width, theme); err != nil {
		return nil, err
	}
	var l layout
	if err := b.evaluate(probe, &l); err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%d-%s", width, theme)
	faults := l.fits(width, theme)
	checked := "not compared with a document"
	if want != nil {
		faults = append(faults, compare(l.Numbers, want)...)
		checked = fmt.Sprintf("%d numbers compared with %d of the document", len(l.Numbers), len(want))
	}
	png, err := b.screenshot()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, name+".png")
	if err := os.WriteFile(file, png, 0o644); err != nil {
		return nil, err
	}
	fmt.Printf("%s: page %d px wide in %d, %s, %d faults\n", file, l.Scroll, l.Inner, checked, len(faults))
	var out []error
	for _, f := range faults {
		out = append(out, fmt.Errorf("%s: %s", name, f))
	}
	return out, nil
}
