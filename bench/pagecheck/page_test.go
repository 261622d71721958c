// Package pagecheck looks at a report the way its readers do: it opens the page in headless Chromium at the
// width of a telephone and of a desk, light and dark, keeps a picture of each, and demands that nothing
// overflows, that the first screen holds what it should, that nothing is fetched, that every number shown
// equals the document, and that axe-core objects to nothing.
package pagecheck

import (
	"cmp"
	"context"
	"encoding/json"
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
	"github.com/chokepoint-lab/chokepoint/internal/analysis/history"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/report"
)

var (
	page     = flag.String("page", "", "the report to look at, or its address at a server")
	pictures = flag.String("pictures", "", "folder for its pictures")
	tallest  = flag.Int("tallest", 0, "most pixels of height that a page may have on a telephone; 0: any")
	numbers  = flag.String("document", "", "output of show --json of the same run")
	first    = flag.String("first", "", "identifiers of what the first screen must hold, separated by commas")
	axe      = flag.String("axe", "", "axe.min.js of axe-core; without it accessibility is not checked")
)

// TestReport looks at a report; .ci/screenshots.sh names it.
func TestReport(t *testing.T) {
	if *page == "" {
		t.Skip("skip: -page names no report, the stage screenshots has one")
	}

	c := check{page: *page, pictures: *pictures, document: *numbers, axe: readAxe(t)}
	if *first != "" {
		c.first = strings.Split(*first, ",")
	}

	for _, fault := range c.faults(t, cmp.Or(os.Getenv("CHROMIUM"), "chromium")) {
		t.Error(fault)
	}
}

// readAxe returns the source of axe-core, "" where none is named.
func readAxe(t *testing.T) string {
	if *axe == "" {
		return ""
	}

	source, err := os.ReadFile(*axe)
	must(t, err)
	return string(source)
}

// TestPlantedBarriers gives axe-core a report, in which it must find nothing, and the same report with one
// barrier of each kind that the check is for, of which it must find each; .ci/screenshots.sh names it.
func TestPlantedBarriers(t *testing.T) {
	source := readAxe(t)
	if source == "" {
		t.Skip("skip: -axe names no axe.min.js, the stage screenshots has one")
	}

	page, err := report.HTML(onePlan())
	must(t, err)
	dir := t.TempDir()
	look := func(page string) string {
		path := filepath.Join(dir, "r.html")
		must(t, os.WriteFile(path, []byte(page), 0o644))
		c := check{page: path, pictures: dir, axe: source}
		return strings.Join(c.faults(t, cmp.Or(os.Getenv("CHROMIUM"), "chromium")), "\n")
	}
	if got := look(string(page)); got != "" {
		t.Errorf("barriers in a good report: %s", got)
	}

	bad := `<p style="color:#ccc;background:#eee">faint</p><img src="data:,"/><button></button>` +
		`<table><tr><th scope="high">?</th></tr></table><input type="text"/><h2>two</h2><h4>four</h4>`
	found := look(strings.Replace(unstyled(string(page)), "</main>", bad+"</main>", 1))
	wants := []string{"1280-light: axe-core: color-contrast", "1280-dark: axe-core: color-contrast"}
	for _, rule := range []string{"image-alt", "button-name", "label", "scope-attr-valid", "heading-order"} {
		wants = append(wants, "390-light: axe-core: "+rule, "1280-light: axe-core: "+rule)
	}

	for _, want := range wants {
		if !strings.Contains(found, want) {
			t.Errorf("found %s\nwant %s among them", found, want)
		}
	}
}

// TestHistory looks at the page of a history with long labels, many runs, changes, gaps and a canary;
// the stage screenshots names axe-core.
func TestHistory(t *testing.T) {
	source := readAxe(t)
	if source == "" {
		t.Skip("skip: -axe names no axe.min.js, the stage screenshots has one")
	}

	h := &history.History{Plan: "nightly", Device: "router", Runs: 30, Canary: "known good"}
	for _, id := range []string{"a", "b"} {
		c := history.Cell{
			ID:     id,
			Label:  "queue@router.wan tbf rate 100mbit burst 32k latency 50ms · wireguard · TCP · " + id,
			Metric: metrics.Of(metrics.Goodput),
		}
		for i := range 30 {
			p := history.Point{
				Run:      fmt.Sprintf("202601%02d-030405-aaaa", i+1),
				Name:     "night",
				Started:  time.Date(2026, 1, i+1, 3, 4, 5, 0, time.UTC),
				Firmware: "OpenWrt 24.10.1 r28597-0425664679",
				Kernel:   "6.6.86",
				Grade:    evidence.GradeValid,
				Value:    &record.Estimate{N: 3, Median: 9.4e8, Low: 9.3e8, High: 9.5e8},
			}
			switch i {
			case 7:
				p.Grade, p.Why, p.Value = evidence.GradeFailed, "the tunnel did not come up", nil
			case 12:
				p.Grade, p.Why, p.GapDays = evidence.GradeSuspect, "throttled", 4
			}

			c.Points = append(c.Points, p)
		}

		c.Canary = c.Points[:20]
		c.Changes = []history.Change{{
			Better: history.Worse,
			Status: history.Confirmed,
			Before: c.Points[14].Run,
			After:  c.Points[15].Run,
			From:   c.Points[14].Started,
			To:     c.Points[15].Started,
			Old:    9.5e8,
			New:    9.3e8,
			Ratio:  .98,
			Causes: []string{"firmware: OpenWrt 24.10.0 → OpenWrt 24.10.1"},
		}}
		h.Cells = append(h.Cells, c)
	}

	content, err := report.HistoryHTML(h)
	must(t, err)
	dir := cmp.Or(*pictures, t.TempDir())
	path := filepath.Join(dir, "history.html")
	must(t, os.MkdirAll(dir, 0o755))
	must(t, os.WriteFile(path, content, 0o644))
	c := check{page: path, pictures: filepath.Join(dir, "history"), axe: source}
	for _, fault := range c.faults(t, cmp.Or(os.Getenv("CHROMIUM"), "chromium")) {
		t.Error(fault)
	}
}

// unstyled lets a page have styles that are not its own, which its policy forbids.
func unstyled(page string) string {
	return regexp.MustCompile(`style-src [^;"]*`).ReplaceAllString(page, "style-src 'unsafe-inline'")
}

// TestPlantedFaults gives a real browser a real report, which must pass, and the same report with one fault
// each, which must not.
func TestPlantedFaults(t *testing.T) {
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("skip: chromium is not installed")
	}

	d := onePlan()
	f := d.Cells[0].Factors
	good, err := report.HTML(d)
	must(t, err)
	document, err := report.JSON(d)
	must(t, err)
	if found := planted(t, program, string(good), document, "rates"); len(found) > 0 {
		t.Errorf("faults of a good report: %q", found)
	}

	bad := unstyled(string(good))
	for _, r := range [][2]string{
		{">5.81 Gbit/s</span>", ">5.82 Gbit/s</span>"},
		{"(prefers-color-scheme:dark)", "(prefers-color-scheme:none)"},
		{"</main>", `<p style="width:2000px">wide</p><img src="missing.png"/>` +
			`<style>#rates{padding-top:900px}</style></main>`},
		{"img-src data:", "img-src *"}, // the page's own policy would stop the request
	} {
		next := strings.Replace(bad, r[0], r[1], 1)
		if next == bad {
			t.Fatalf("fault %q was not planted", r[1])
		}

		bad = next
	}

	found := strings.Join(planted(t, program, bad, document, "rates", "nowhere"), "\n")
	for _, want := range []string{"390-light: " + f.Key() + "|goodput_bps", `reads "5.82 Gbit/s"`,
		"390-dark: the ground is not dark", "390-light: the page is 2", "px wide in a window of 390",
		"1280-dark: sticks out: P.", "390-light: first screen: rates ends at ",
		"1280-light: first screen: rates ends at ", "first screen: nothing has the identifier nowhere",
		"the page fetched file://"} {
		if !strings.Contains(found, want) {
			t.Errorf("faults %s\nwant %q among them", found, want)
		}
	}
}

// onePlan returns a document with one cell.
func onePlan() *analysis.Document {
	return &analysis.Document{
		Format: record.Format,
		Run: analysis.RunHead{
			RunHead: record.RunHead{ID: "r1", Status: record.RunDone},
			Plan:    "quick",
		},
		Cells: []analysis.Cell{{
			Cell: metrics.Cell{
				Factors: record.Factors{"tunnel": "none", "streams": "1"},
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
}

// planted runs the whole check on a page and demands its eight pictures.
func planted(t *testing.T, program, page string, document []byte, first ...string) []string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "r.html"), []byte(page), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "r.json"), document, 0o644))
	c := check{
		page:     filepath.Join(dir, "r.html"),
		pictures: filepath.Join(dir, "shots"),
		document: filepath.Join(dir, "r.json"),
		first:    first,
	}
	found := c.faults(t, program)
	shots, err := filepath.Glob(filepath.Join(c.pictures, "*.png"))
	if err != nil || len(shots) != 8 {
		t.Errorf("%d pictures, %v, want 8", len(shots), err)
	}

	return found
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// check says what is looked at, and what for.
type check struct {
	page, pictures string
	document       string   // "": its numbers are not compared
	first          []string // identifiers of what the first screen must hold
	axe            string   // source of axe-core, or ""
}

// faults says what is wrong with a page.
func (c check) faults(t *testing.T, program string) (found []string) {
	address := c.page
	if !strings.HasPrefix(address, "http://") {
		page, err := filepath.Abs(c.page)
		must(t, err)
		_, err = os.Stat(page)
		must(t, err)
		address = (&url.URL{Scheme: "file", Path: page}).String()
	}

	var want map[string]float64
	if c.document != "" {
		want = readNumbers(t, c.document)
	}

	must(t, os.MkdirAll(c.pictures, 0o755))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	b := startBrowser(ctx, t, program)
	defer b.close()
	for _, width := range []int{390, 1280} {
		for _, theme := range []string{"light", "dark"} {
			found = append(found, c.look(b, address, width, theme, want)...)
		}
	}

	for _, a := range b.fetched {
		if !mayFetch(address, a) {
			found = append(found, "the page fetched "+a)
		}
	}

	return found
}

// mayFetch reports whether the page at an address may fetch another one. The live pages of a server fetch
// events.
func mayFetch(address, other string) bool {
	u, err := url.Parse(address)
	live := err == nil && u.Host != "" && (u.Path == "/beds" || u.Path == "/alarms")
	return other == address || other == "about:blank" || live && other == "http://"+u.Host+"/events"
}

func TestMayFetch(t *testing.T) {
	const server = "http://127.0.0.1:8080"
	for _, page := range []string{"/beds", "/alarms?page=2", "/", "/login", "/runs/beds"} {
		want := page != "/" && page != "/login" && page != "/runs/beds"
		if got := mayFetch(server+page, server+"/events"); got != want {
			t.Errorf("%s: may fetch events: got %v, want %v", page, got, want)
		}

		if !mayFetch(server+page, server+page) || mayFetch(server+page, "http://127.0.0.1:8081/events") {
			t.Errorf("%s: may not fetch itself, or may fetch from another server", page)
		}
	}
}

// look opens the page once, keeps pictures of it and of its first screen, and returns what is wrong.
func (c check) look(b *browser, address string, width int, theme string,
	want map[string]float64) (found []string) {
	b.show(address, width, theme)
	name := fmt.Sprintf("%d-%s", width, theme)
	file := filepath.Join(c.pictures, name)
	must(b.t, os.WriteFile(file+"-first.png", b.screenshot(false), 0o644))
	must(b.t, os.WriteFile(file+".png", b.screenshot(true), 0o644))
	wanted, err := json.Marshal(append([]string{}, c.first...))
	must(b.t, err)
	var l, opened layout
	b.evaluate(probe+"("+string(wanted)+")", &l)
	b.open()
	b.evaluate(probe+"([])", &opened)
	wrong := l.fits(width, theme, *tallest)
	checked := "not compared with a document"
	for _, fault := range opened.fits(width, theme, 0) {
		wrong = append(wrong, "opened: "+fault)
	}

	if want != nil {
		wrong = append(wrong, compare(opened.Numbers, want)...)
		checked = fmt.Sprintf("%d numbers compared with %d of the document", len(opened.Numbers), len(want))
	}

	barriers := "accessibility not checked"
	if c.axe != "" {
		all := b.barriers(c.axe, rulesAt[name])
		wrong = append(wrong, all...)
		barriers = fmt.Sprintf("%d barriers", len(all))
	}

	fmt.Fprintf(b.t.Output(), "%s.png: page %d px wide in %d, %d high, %s, %s, %d faults\n", file, l.Scroll,
		l.Inner, l.Height, checked, barriers, len(wrong))
	for _, w := range wrong {
		found = append(found, name+": "+w)
	}

	return found
}

// rulesAt lists what axe-core looks for in each picture: of colours, which take most of its time, in both
// themes, and everything else at both widths.
var rulesAt = map[string]string{
	"390-light":  `{rules: {"color-contrast": {enabled: false}}}`,
	"390-dark":   `{runOnly: ["link-in-text-block"]}`,
	"1280-light": `{}`,
	"1280-dark":  `{runOnly: ["color-contrast", "link-in-text-block"]}`,
}

// rules runs axe-core on the page with everything opened.
const rules = `(options => axe.run(document, options).then(r => r.violations
  .map(v => v.id + " (" + v.impact + "), " + v.nodes.length + " times: " + v.help + ": " + v.nodes.slice(0, 3)
    .map(n => n.html.slice(0, 200) + " [" + n.failureSummary.replace(/\s+/g, " ") + "]").join("; "))))`

// barriers returns what axe-core objects to, however serious: headings that leave out a level are moderate.
func (b *browser) barriers(source, options string) (found []string) {
	var ok bool
	b.evaluate(source+";true", &ok)
	b.evaluate(rules+"("+options+")", &found)
	for i := range found {
		found[i] = "axe-core: " + found[i]
	}

	return found
}
