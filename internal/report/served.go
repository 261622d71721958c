package report

import (
	_ "embed" // the template and style of served pages
	"html"
	"html/template"
	"sync"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

//go:embed served.tmpl
var servedTemplate string

//go:embed served.css
var servedStyle string

//go:embed served.js
var servedScript string

// ServedPage is a page of a server before it is laid out. It has a script only if Live is set.
type ServedPage struct {
	Links       []Link // to the other pages of the server
	Kind, Title string
	Lead        string
	Refresh     int // seconds until the browser loads the page again; 0: never
	// Live identifies the state that the page shows. If it is set, the page's script follows the events of
	// the server: it shows progress, and reloads the page when the state changes. Without scripts, Refresh
	// applies.
	Live     string
	Alerts   []Item
	Form     *Form
	Sections []Section
	More     []Link // shown at the end: other parts of a list, or the same data in another format
}

// Form sends its fields to Action as the parameters of a GET request or, if Post is set, in the body of a
// POST request.
type Form struct {
	Action, Button string
	Post           bool
	Hidden         []Field
	Fields         []Field
}

func (Form) kind() string { return "form" }

// Field is a text field, or a choice between its options.
type Field struct {
	Name, Label, Value string
	Type               string // HTML type of a text field; "" means text
	Complete           string // what the browser may fill in (attribute autocomplete), or ""
	Options            []Option
}

// Progress shows how far a task has come, in words and as a bar. The page's script updates it from the events
// of the server.
type Progress struct {
	Name        string
	Text        string
	Done, Total int // Total 0: unknown
}

func (Progress) kind() string { return "progress" }

// Option has the text that people read and the value that is sent.
type Option struct{ Value, Text string }

// servedLayout is the template of served pages, which is parsed once.
var servedLayout = sync.OnceValue(func() *template.Template { return layout(servedTemplate, nil) })

// HTML renders the page. The page loads no other files.
func (p ServedPage) HTML() ([]byte, error) {
	return laidOut("page "+p.Title, servedLayout(), servedScript, map[string]any{
		"Page":  p,
		"Forms": template.CSS(servedStyle),
	})
}

var policyOfPage = check.Pattern(`<meta http-equiv="Content-Security-Policy" content="([^"]*)"/>`)

// Policy returns the Content-Security-Policy in the head of an HTML page of this package, so that a server
// can send it as a header. It returns "" if the page has none.
func Policy(page []byte) string {
	m := policyOfPage().FindSubmatch(page)
	if m == nil {
		return ""
	}
	return html.UnescapeString(string(m[1]))
}
