// Package pagecheck looks at a report the way its readers do: it opens the page in headless Chromium at the
// width of a telephone and of a desk, light and dark, keeps a picture of each, and demands that nothing
// overflows, that nothing is fetched, and that every number shown equals the document.
package pagecheck

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/report"
)

var (
	page     = flag.String("page", "", "the report to look at")
	pictures = flag.String("pictures", "", "folder for its pictures")
	tallest  = flag.Int("tallest", 0, "most pixels of height that a page may have on a telephone; 0: any")
	numbers  = flag.String("document", "", "output of show --json of the same run")
)

// TestReport looks at a report; .ci/screenshots.sh names it.
func TestReport(t *testing.T) {
	if *page == "" {
		t.Skip("skip: -page names no report, the stage screenshots has one")
	}

	for _, fault := range faults(t, cmp.Or(os.Getenv("CHROMIUM"), "chromium"), *page, *pictures, *numbers) {
		t.Error(fault)
	}
}

// TestPlantedFaults gives a real browser a real report, which must pass, and the same report with one fault
// each, which must not.
func TestPlantedFaults(t *testing.T) {
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("skip: chromium is not installed")
	}

	f := record.Factors{"tunnel": "none", "streams": "1"}
	d := &analysis.Document{
		Format: record.Format,
		Run: analysis.RunHead{
			RunHead: record.RunHead{ID: "r1", Status: record.RunDone},
			Plan:    "quick",
		},
		Cells: []analysis.Cell{{
			Cell: metrics.Cell{
				Factors: f,
				Label:   "no tunnel, 1 stream",
				Grade:   evidence.GradeValid,
				Metrics: map[string]statistics.Value{"goodput_bps": {
					Spread: statistics.Spread{
						Low:      5.5e9,
						High:     6.1e9,
						N:        3,
						Interval: statistics.IntervalRange,
					},
					Median: 5.812e9,
					Values: []float64{5.5e9, 5.812e9, 6.1e9},
				}},
			},
			Runs: 3,
		}},
	}
	good, err := report.HTML(d)
	must(t, err)
	document, err := report.JSON(d)
	must(t, err)
	if found := planted(t, program, string(good), document); len(found) > 0 {
		t.Errorf("faults of a good report: %q", found)
	}

	// The page's policy would forbid styles that are not its own.
	bad := regexp.MustCompile(`style-src [^;"]*`).ReplaceAllString(string(good), "style-src 'unsafe-inline'")
	for _, r := range [][2]string{
		{">5.81 Gbit/s</span>", ">5.82 Gbit/s</span>"},
		{"(prefers-color-scheme:dark)", "(prefers-color-scheme:none)"},
		{"</main>", `<p style="width:2000px">wide</p><img src="missing.png"/></main>`},
		{"img-src data:", "img-src *"}, // the page's own policy would stop the request
	} {
		next := strings.Replace(bad, r[0], r[1], 1)
		if next == bad {
			t.Fatalf("fault %q was not planted", r[1])
		}

		bad = next
	}

	found := strings.Join(planted(t, program, bad, document), "\n")
	for _, want := range []string{"390-light: " + f.Key() + "|goodput_bps", `reads "5.82 Gbit/s"`,
		"390-dark: the ground is not dark", "390-light: the page is 2", "px wide in a window of 390",
		"1280-dark: sticks out: P.", "the page fetched file://"} {
		if !strings.Contains(found, want) {
			t.Errorf("faults %s\nwant %q among them", found, want)
		}
	}
}

// planted runs the whole check on a page and demands its four pictures.
func planted(t *testing.T, program, page string, document []byte) []string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "r.html"), []byte(page), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "r.json"), document, 0o644))
	found := faults(t, program, filepath.Join(dir, "r.html"), filepath.Join(dir, "shots"),
		filepath.Join(dir, "r.json"))
	shots, err := filepath.Glob(filepath.Join(dir, "shots", "*.png"))
	if err != nil || len(shots) != 4 {
		t.Errorf("%d pictures, %v, want 4", len(shots), err)
	}

	return found
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// faults says what is wrong with a page.
func faults(t *testing.T, program, page, dir, document string) (found []string) {
	page, err := filepath.Abs(page)
	must(t, err)
	_, err = os.Stat(page)
	must(t, err)
	var want map[string]float64
	if document != "" {
		want = readNumbers(t, document)
	}

	must(t, os.MkdirAll(dir, 0o755))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	b := startBrowser(ctx, t, program)
	defer b.close()
	address := (&url.URL{Scheme: "file", Path: page}).String()
	for _, width := range []int{390, 1280} {
		for _, theme := range []string{"light", "dark"} {
			found = append(found, b.look(address, dir, width, theme, want)...)
		}
	}

	for _, a := range b.fetched {
		if a != address && a != "about:blank" {
			found = append(found, "the page fetched "+a)
		}
	}

	return found
}

// look opens the page once, keeps its picture and returns what is wrong.
func (b *browser) look(address, dir string, width int, theme string,
	want map[string]float64) (found []string) {
	b.show(address, width, theme)
	var l, opened layout
	b.evaluate(probe, &l)
	name := fmt.Sprintf("%d-%s", width, theme)
	file := filepath.Join(dir, name+".png")
	must(b.t, os.WriteFile(file, b.screenshot(), 0o644))
	b.open()
	b.evaluate(probe, &opened)
	wrong := l.fits(width, theme, *tallest)
	checked := "not compared with a document"
	for _, fault := range opened.fits(width, theme, 0) {
		wrong = append(wrong, "opened: "+fault)
	}

	if want != nil {
		wrong = append(wrong, compare(opened.Numbers, want)...)
		checked = fmt.Sprintf("%d numbers compared with %d of the document", len(opened.Numbers), len(want))
	}

	fmt.Fprintf(b.t.Output(), "%s: page %d px wide in %d, %d high, %s, %d faults\n", file, l.Scroll, l.Inner,
		l.Height, checked, len(wrong))
	for _, w := range wrong {
		found = append(found, name+": "+w)
	}

	return found
}
