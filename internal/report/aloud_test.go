package report

import (
	"encoding/xml"
	"fmt"
	"strings"
	"testing"
)

// TestPageCanBeReadAloud: one main heading, no level left out, tables with headed columns and rows, pictures
// with a name or hidden, a way past the navigation, and nothing that only a pointer can use.
func TestPageCanBeReadAloud(t *testing.T) {
	for name, d := range samples() {
		t.Run(name, func(t *testing.T) {
			page, err := HTML(d)
			if err != nil {
				t.Fatal(err)
			}

			for _, fault := range unreadable(t, page) {
				t.Error(fault)
			}
		})
	}

	bad := `<html><body><h1>a</h1><h3>b</h3><main><table><thead><tr><th>c</th></tr></thead>` +
		`<tbody><tr><td>1</td></tr></tbody></table><svg></svg><nav></nav><p tabindex="3" onclick="x()">d</p>` +
		`</main></body></html>`
	got := unreadable(t, []byte(bad))
	if len(got) != 8 {
		t.Errorf("faults of a bad page: %q, want 8", got)
	}
}

// unreadable returns what a page keeps from a reader who does not see it, or has no pointer.
func unreadable(t *testing.T, page []byte) (faults []string) {
	t.Helper()
	level, headings, links := 0, 0, 0
	row, head := "", false
	elements(t, page, func(e xml.StartElement) {
		fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
		switch n := e.Name.Local; n {
		case "h1", "h2", "h3", "h4":
			next := int(n[1] - '0')
			if next > level+1 {
				fault("%s follows a heading of level %d", n, level)
			}

			level = next
			if next == 1 {
				headings++
			}
		case "thead", "tbody":
			head = n == "thead"
		case "tr":
			row = "first"
			if strings.HasPrefix(attribute(e, "class"), "notes") {
				row = "notes"
			}
		case "td", "th":
			scope := attribute(e, "scope")
			switch {
			case head && scope != "col":
				fault("the head of a column has the scope %q", scope)
			case !head && row == "first" && scope != "row" && scope != "rowgroup":
				fault("a row begins with %s of scope %q", n, scope)
			}

			row = ""
		case "svg":
			named := attribute(e, "role") == "img" && attribute(e, "aria-label") != ""
			if attribute(e, "aria-hidden") == "" && !named {
				fault("a picture has no name")
			}
		case "nav":
			if attribute(e, "aria-label") == "" {
				fault("a navigation has no name")
			}
		case "a":
			if attribute(e, "class") == "skip" && attribute(e, "href") == "#content" {
				links++
			}
		}

		if order := attribute(e, "tabindex"); order != "" && order != "0" {
			fault("%s changes the order of the keyboard", e.Name.Local)
		}

		if attribute(e, "onclick") != "" {
			fault("%s has a script of its own", e.Name.Local)
		}
	})
	if headings != 1 || links != 1 {
		faults = append(faults, fmt.Sprintf("%d main headings, %d links past the contents", headings, links))
	}

	return faults
}
