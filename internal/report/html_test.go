package report

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"flag"
	"html"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
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
			if n := len(open); n > 0 && open[n-1] != "style" && open[n-1] != "script" {
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
				if id := attribute(e, "id"); id != "" {
					if ids[id] {
						t.Errorf("id %s stands twice", id)
					}
					ids[id] = true
				}
				for _, a := range []string{"src", "href", "srcset", "action", "poster", "data"} {
					v := attribute(e, a)
					if v != "" && !strings.HasPrefix(v, "#") &&
						!strings.HasPrefix(v, "data:image/svg+xml;base64,") {
						t.Errorf("%s of %s leaves the page: %.60s", a, e.Name.Local, v)
					}
					if target, ok := strings.CutPrefix(v, "#"); ok {
						targets = append(targets, target)
					}
				}
				if n := e.Name.Local; n == "link" || n == "iframe" || n == "img" || n == "object" {
					t.Errorf("the page holds a %s", n)
				}
			})
			for _, target := range targets {
				if !ids[target] {
					t.Errorf("link to #%s leads nowhere", target)
				}
			}
			if m := regexp.MustCompile(`url\(|@import|ZgotmplZ`).Find(page); m != nil {
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
	scripts := 0
	text := elements(t, page, func(e xml.StartElement) {
		if e.Name.Local == "script" {
			scripts++
		}
	})
	if scripts != 1 {
		t.Errorf("%d scripts, want 1", scripts)
	}
	if !strings.Contains(text, strings.TrimSpace(printable(hostile))) {
		t.Error("hostile text is not shown as it was")
	}
	for ext, render := range renderers() {
		out, err := render(damagedDocument())
		if err != nil {
			t.Fatal(err)
		}
		if ext != "csv" && ext != "json" && strings.ContainsAny(strings.ReplaceAll(string(out), "\x1b[", ""),
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
		data, ok := strings.CutPrefix(attribute(e, "href"), "data:image/svg+xml;base64,")
		if !ok {
			return
		}
		n++
		svg, err := base64.StdEncoding.DecodeString(data)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(svg), "var(--") {
			t.Errorf("%s has colours that are not resolved", attribute(e, "download"))
		}
		if !strings.HasPrefix(string(svg), `<svg xmlns="http://www.w3.org/2000/svg" width="`) {
			t.Errorf("%s begins %.60q", attribute(e, "download"), svg)
		}
		elements(t, svg, func(xml.StartElement) {})
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
