package report

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"html"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
)

// elements walks a page as strict XML, which its template keeps to, and fails the test where it is not well
// formed.
func elements(t *testing.T, page []byte, visit func(xml.StartElement)) string {
	t.Helper()
	dec := xml.NewDecoder(strings.NewReader(string(page)))
	dec.Entity = xml.HTMLEntity
	var text strings.Builder
	var open []string
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return text.String()
		}

		if err != nil {
			t.Fatalf("page is not well formed: %v", err)
		}

		switch tok := tok.(type) {
		case xml.StartElement:
			open = append(open, tok.Name.Local)
			visit(tok)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			n := len(open)
			if n > 0 && open[n-1] != "style" && open[n-1] != "script" {
				text.Write(tok)
			}
		}
	}
}

func attribute(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

var pages = flag.String("pages", "", "keep the sample pages and their documents in this folder, to look at")

func keepPage(t *testing.T, name string, d *analysis.Document, page []byte) {
	t.Helper()
	if *pages == "" {
		return
	}

	document, err := JSON(d)
	if err != nil {
		t.Fatal(err)
	}

	for ext, data := range map[string][]byte{".html": page, ".json": document} {
		if err := os.WriteFile(filepath.Join(*pages, name+ext), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPageStandsAlone(t *testing.T) {
	for name, d := range samples() {
		t.Run(name, func(t *testing.T) {
			page, err := HTML(d)
			if err != nil {
				t.Fatal(err)
			}

			keepPage(t, name, d, page)
			ids := map[string]bool{}
			var targets []string
			elements(t, page, func(e xml.StartElement) {
				id := attribute(e, "id")
				if id != "" {
					if ids[id] {
						t.Errorf("id %s stands twice", id)
					}

					ids[id] = true
				}

				for _, a := range []string{"src", "href", "srcset", "action", "poster", "data"} {
					v := attribute(e, a)
					if v != "" && !strings.HasPrefix(v, "#") && !strings.HasPrefix(v, svgURL) {
						t.Errorf("%s of %s leaves the page: %.60s", a, e.Name.Local, v)
					}

					if target, ok := strings.CutPrefix(v, "#"); ok {
						targets = append(targets, target)
					}
				}

				n := e.Name.Local
				if n == "link" || n == "iframe" || n == "img" || n == "object" {
					t.Errorf("the page holds a %s", n)
				}
			})
			for _, target := range targets {
				if !ids[target] {
					t.Errorf("link to #%s leads nowhere", target)
				}
			}

			m := regexp.MustCompile(`url\(|@import|ZgotmplZ`).Find(page)
			if m != nil {
				t.Errorf("the page holds %q", m)
			}
		})
	}
}

func TestHostileTextStaysText(t *testing.T) {
	page, err := HTML(damagedDocument())
	if err != nil {
		t.Fatal(err)
	}

	scripts := map[string]int{}
	text := elements(t, page, func(e xml.StartElement) {
		if e.Name.Local == "script" {
			scripts[attribute(e, "type")]++
		}
	})
	diff := cmp.Diff(map[string]int{"": 1, "application/json": 1}, scripts)
	if diff != "" {
		t.Errorf("scripts by type (-want +got)\n%s", diff)
	}

	if !strings.Contains(text, strings.TrimSpace(printable(hostile))) {
		t.Error("hostile text is not shown as it was")
	}

	for ext, render := range renderers() {
		out, err := render(damagedDocument())
		if err != nil {
			t.Fatal(err)
		}

		if !isCSV(ext) && ext != "json" && strings.ContainsAny(strings.ReplaceAll(string(out), "\x1b[", ""),
			"\a\r\x1b") {
			t.Errorf("%s holds control characters of the document", ext)
		}
	}

	if strings.Contains(Text(damagedDocument(), 80, true), "\x1b[2J") {
		t.Error("text of the document clears the screen")
	}

	md, err := Markdown(damagedDocument())
	if err != nil {
		t.Fatal(err)
	}

	if strings.Contains(string(md), "<script>") {
		t.Error("Markdown holds a script")
	}
}

func TestSavedChartsAreWholeFiles(t *testing.T) {
	page, err := HTML(sampleDocument())
	if err != nil {
		t.Fatal(err)
	}

	n := 0
	elements(t, page, func(e xml.StartElement) {
		data, ok := strings.CutPrefix(attribute(e, "href"), svgURL)
		if !ok {
			return
		}

		n++
		svg, err := url.PathUnescape(data)
		if err != nil {
			t.Fatal(err)
		}

		if strings.Contains(svg, "var(--") {
			t.Errorf("%s has colours that are not resolved", attribute(e, "download"))
		}

		if !strings.HasPrefix(svg, `<svg xmlns='http://www.w3.org/2000/svg' width='`) {
			t.Errorf("%s begins %.60q", attribute(e, "download"), svg)
		}

		elements(t, []byte(svg), func(xml.StartElement) {})
	})
	if n < 20 {
		t.Errorf("%d charts can be saved", n)
	}
}

func TestEveryColourIsDeclared(t *testing.T) {
	p := palette()
	for _, m := range regexp.MustCompile(`var\(--([a-z0-9]+)\)`).FindAllStringSubmatch(pageStyle+chartStyle,
		-1) {
		if _, ok := p[m[1]]; !ok {
			t.Errorf("colour %s is used and not declared", m[1])
		}
	}
}

// measure gives each cell of a document a number of each declared metric of the nodes, of TCP and of latency.
func measure(d *analysis.Document) {
	d.Metrics = metrics.Metrics()
	for i := range d.Cells {
		for k, m := range d.Metrics {
			x := 1e5 * float64(k+1) / 7
			stem, _, _ := strings.Cut(m.Name, "_")
			if _, ok := d.Cells[i].Metrics[m.Name]; !ok && slices.Contains([]string{"host", "router", "tcp",
				"rtt"}, stem) {
				d.Cells[i].Metrics[m.Name] = statistics.Summarise([]float64{x, 1.1 * x, 1.3 * x})
			}
		}
	}
}

// maxPage bounds the bytes of a page of ten cells with three trials and about 50 metrics each.
const maxPage = 385_000

// TestPageStaysSmall bounds the page of a run like quick.
func TestPageStaysSmall(t *testing.T) {
	d := sampleDocument()
	measure(d)
	page, err := HTML(d)
	if err != nil {
		t.Fatal(err)
	}

	t.Logf("%d bytes with %d metrics in each of %d cells", len(page), len(d.Cells[0].Metrics), len(d.Cells))
	if len(page) > maxPage {
		t.Errorf("the page has %d bytes, want at most %d", len(page), maxPage)
	}
}

// TestMetricTablesHoldEveryNumber: the data from which the script fills the tables has each median of the
// document, exact and as a reader sees it, and each reason for a missing number.
func TestMetricTablesHoldEveryNumber(t *testing.T) {
	d := sampleDocument()
	measure(d)
	page, err := HTML(d)
	if err != nil {
		t.Fatal(err)
	}

	_, text, _ := strings.Cut(string(page), `<script type="application/json" id="metrics-data">`)
	text, _, _ = strings.Cut(text, "</script>")
	var data MetricTables
	if err := json.Unmarshal([]byte(text), &data); err != nil {
		t.Fatal(err)
	}

	v := newView(d)
	for i, c := range d.Cells {
		numbers := map[string]float64{}
		missing := map[string]string{}
		for _, row := range data.Tables[i].Rows {
			name := data.Names[int(row[0].(float64))][1]
			if len(row) == 2 {
				missing[name] = strings.TrimPrefix(data.Words[int(row[1].(float64))], "unavailable: ")
				continue
			}

			numbers[name] = row[4].(float64)
			if want := v.text(name, numbers[name]); row[3] != want {
				t.Errorf("%s of %s reads %q, want %q", name, c.Label, row[3], want)
			}
		}

		want := map[string]float64{}
		for name, x := range c.Metrics {
			want[name] = x.Median
		}

		if diff := cmp.Diff(want, numbers); diff != "" || data.Tables[i].Cell != c.Factors.Key() {
			t.Errorf("numbers of %s (-want +got)\n%s", data.Tables[i].Cell, diff)
		}

		if diff := cmp.Diff(c.Missing, missing); diff != "" {
			t.Errorf("missing in %s (-want +got)\n%s", c.Label, diff)
		}
	}
}

// TestResultsFitADesk: what is said of a number in words may take several lines, so that the table of a sweep
// fits 1280 pixels; what the words for evenness mean stands with the table.
func TestResultsFitADesk(t *testing.T) {
	page, err := HTML(articleDocument())
	if err != nil {
		t.Fatal(err)
	}

	for _, want := range []string{`<span class="sub words">without tunnel</span>`, " Evenness is how steady"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q", want)
		}
	}

	if want := ".num .words,.cards thead th{white-space:normal}"; !strings.Contains(pageStyle, want) {
		t.Errorf("the style lacks %q", want)
	}
}

// TestPolicyNamesItsOwnScriptAndStyle: a page allows what it brings along by hash, and nothing inline
// besides.
func TestPolicyNamesItsOwnScriptAndStyle(t *testing.T) {
	b, err := HTML(smallDocument())
	if err != nil {
		t.Fatal(err)
	}

	page := string(b)
	_, policy, _ := strings.Cut(page, `Content-Security-Policy" content="`)
	policy, _, _ = strings.Cut(policy, `"`)
	policy = html.UnescapeString(policy)
	for _, tag := range []string{"style", "script"} {
		_, text, ok := strings.Cut(page, "<"+tag+">")
		text, _, _ = strings.Cut(text, "</"+tag+">")
		sum := sha256.Sum256([]byte(text))
		want := tag + "-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "';"
		if !ok || !strings.Contains(policy, want) {
			t.Errorf("policy: got %s, want %s in it", policy, want)
		}
	}

	if strings.Contains(policy, "unsafe") {
		t.Errorf("policy: got %s, want nothing unsafe in it", policy)
	}
}
