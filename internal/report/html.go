package report

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed" // the page's style, script and template
	"encoding/base64"
	"fmt"
	"html/template"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/check"
)

//go:embed page.tmpl
var pageTemplate string

// themeStyle declares the colours of the light and dark themes. The reader's system chooses the theme.
//
//go:embed themes.css
var themeStyle string

//go:embed page.css
var pageStyle string

//go:embed chart.css
var chartStyle string

//go:embed page.js
var pageScript string

// HTML returns the report as one page that needs no network. Its script saves charts as PNG and fills the
// tables that list every metric.
func HTML(d *analysis.Document) ([]byte, error) { return LinkedHTML(d, nil) }

// LinkedHTML returns the page of HTML, with links to the other pages of a server at the top.
func LinkedHTML(d *analysis.Document, links []Link) ([]byte, error) {
	v := newView(d)
	h := headOf(v)
	isBad := func(item Item) bool { return item.Tone == Bad }
	alerts := filter(h.Alerts, isBad)
	return laidOut("report of run "+d.Run.ID, layout("", v), pageScript, map[string]any{
		"Links":    links,
		"Doc":      d,
		"Head":     h,
		"Alerts":   alerts,
		"Doubts":   filter(h.Alerts, func(item Item) bool { return !isBad(item) }),
		"Opening":  openingOf(v, len(alerts)),
		"Sections": sections(v),
	})
}

// layout returns the template with the given text, which can use the templates of a report. "" means the
// report. v is the view of the run on the page, or nil if the page shows no run.
func layout(text string, v *view) *template.Template {
	t := template.Must(template.New("page").Funcs(pageFunctions(v)).Parse(pageTemplate))
	if text == "" {
		return t
	}
	return template.Must(t.New("layout").Parse(text))
}

// laidOut executes the template of a page with its style and script. what names the page in errors.
func laidOut(what string, t *template.Template, script string, page map[string]any) ([]byte, error) {
	page["Style"] = template.CSS(strings.ReplaceAll(themeStyle, "\n", "") + pageStyle + chartStyle)
	page["Script"] = template.JS(script)
	var out bytes.Buffer
	if err := t.Execute(&out, page); err != nil {
		return nil, fmt.Errorf("lay out %s: %v", what, err)
	}

	return []byte(printable(out.String())), nil
}

// hash returns the hash of an inline style or script, as a source for the Content Security Policy. Browsers
// ignore all other inline styles and scripts, even if they interpret text of a run as markup.
func hash(content any) string {
	sum := sha256.Sum256(fmt.Append(nil, content))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// pageCell is a table cell with its CSS classes, and with its heading if the row is shown as a card.
type pageCell struct {
	Table       Table
	Cell        TableCell
	Class, Head string
	Heads       bool // the cell is the heading of its row
}

func cellOf(t Table, i int, c TableCell) pageCell {
	column := t.Columns[i]
	p := pageCell{Table: t, Cell: c, Heads: i == 0}
	if t.Cards && i > 0 {
		p.Head = cmp.Or(c.Head, column.Head)
	}

	p.Class = joined(" ", marked(column.Numeric, "", "num"), marked(column.Keep, "", "keep"),
		marked(t.Cards && (c.Text == none.Text || c.Text == ""), "", "empty"))
	return p
}

type savedFile struct {
	Name string
	Href template.HTMLAttr // escaped by inURL
}

func pageFunctions(v *view) template.FuncMap {
	return template.FuncMap{
		"slug":   slug,
		"hash":   hash,
		"about":  about,
		"mark":   mark,
		"kind":   Block.kind,
		"exact":  func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) },
		"draw":   drawn,
		"swatch": func(class string) template.HTML { return template.HTML(swatch(class).svg("", "")) },
		"saveFigure": func(f Figure) savedFile {
			if v == nil { // a saved chart names its run
				return savedFile{}
			}
			return saved(f.ID, v.figureSheet(f))
		},
		"savePanel": func(all Panels, p Figure) savedFile { return saved(p.ID, v.panelSheet(all, p)) },
		"cell":      cellOf,
	}
}

func drawn(d Drawing, where string) template.HTML {
	return template.HTML(d.Draw(widths[where]).svg("", ""))
}

func saved(id string, s sheet) savedFile {
	c := s.compose(s.Natural)
	return savedFile{slug(id), template.HTMLAttr(`href="` + svgURL +
		inURL.Replace(c.file(c.pixels())) + `"`)}
}

// svgURL is the prefix of the data URL of a chart.
const svgURL = "data:image/svg+xml,"

// inURL escapes the characters that are not allowed in a data URL or attribute. Base64 would need about a
// quarter more bytes.
var inURL = strings.NewReplacer("%", "%25", "#", "%23", "&", "%26", "<", "%3C", "\n", "%0A", "\t", "%09",
	`"`, "'")

var widths = map[string]float64{"wide": wideWidth, "narrow": narrowWidth - 28, "panel": panelWidth,
	"picture": 660, "half": 500, "phone": narrowWidth, "bar": 88}

// mark returns the label of a note: a to z, then numbers.
func mark(i int) string {
	if i < 26 {
		return string(rune('a' + i))
	}
	return strconv.Itoa(i + 1)
}

var notInSlugs = check.Pattern(`[^a-z0-9]`)

// slug converts text to an identifier for anchors and file names.
func slug(s string) string {
	return notInSlugs().ReplaceAllString(strings.ToLower(s), "-")
}

// swatch draws a legend's sample of a class.
func swatch(class string) *canvas {
	c := &canvas{w: 22, h: 12}
	switch {
	case strings.HasPrefix(class, "h "):
		c.broad(class, 12, "M3 6H19")
	case strings.HasPrefix(class, "bar "), strings.HasPrefix(class, "doubt "):
		kind, colour, _ := strings.Cut(class, " ")
		c.bar(colour, kind == "doubt", 3, 0.5, 16, 11)
	case strings.HasPrefix(class, "hollow "):
		c.circle(class, 11, 6, 4)
	case class == "ceiling", class == "limit":
		c.upright(class, 11, 0, 12)
	default:
		c.line(class, 0, 6, 22, 6)
	}
	return c
}

var colourVariable = check.Pattern(`--([a-z0-9]+):(#[0-9a-f]{6});`)

// palette returns the page's colours, light and dark. Readers with the common kinds of colour blindness can
// still distinguish the eight series colours. Series colours have a contrast of at least 3:1 with the
// background (WCAG 2.2, 1.4.11), and text colours at least 4.5:1.
func palette() map[string][2]string {
	colours := map[string][2]string{}
	light, dark, _ := strings.Cut(themeStyle, "@media")
	for theme, style := range []string{light, dark} {
		for _, m := range colourVariable().FindAllStringSubmatch(style, -1) {
			pair := colours[m[1]]
			pair[theme] = m[2]
			colours[m[1]] = pair
		}
	}

	return colours
}

// resolve replaces variables with the colours of the light theme, for saved files.
func resolve(css string) string {
	var pairs []string
	for name, colours := range palette() {
		pairs = append(pairs, "var(--"+name+")", colours[0])
	}
	return strings.NewReplacer(pairs...).Replace(css)
}
