package report

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// sheet is a standalone chart with its title, its legend and the origin of its numbers.
type sheet struct {
	Title, Sub string
	Legend     []LegendItem
	Draw       Drawing
	Foot       []string
	Natural    float64 // preferred width
}

// Size is the size of a saved chart in pixels. The zero Size means the preferred width and the necessary
// height.
type Size struct{ Width, Height int }

// Social returns the size of preview images on social networks.
func Social() Size { return Size{1200, 630} }

const (
	sheetEdge  = 20.0
	sheetLine  = 18.0
	sheetTitle = 17.0
	minWide    = narrowBelow + 2*sheetEdge // below this width, drawings switch to their narrow form
	minUnit    = 0.6                       // pixels per unit; with fewer, text is not legible
)

// lay draws the sheet. It returns the canvas, its size in pixels and the number of pixels per unit. For a
// given size, it uses the smallest width at which the height fits.
func (s sheet) lay(size Size) (c *canvas, pixels Size, unit float64, err error) {
	if size == (Size{}) {
		c := s.compose(s.Natural)
		return c, c.pixels(), 1, nil
	}

	shape := float64(size.Height) / float64(size.Width)
	for width := minWide; width <= float64(size.Width)/minUnit; width *= 1.04 {
		if c := s.compose(width); c.h <= c.w*shape {
			c.h = c.w * shape
			return c, size, float64(size.Width) / c.w, nil
		}
	}

	return nil, size, 0, check.WithHint(fmt.Errorf("it does not fit into %dx%d pixels", size.Width,
		size.Height), "give a greater --size, or none: the chart is then as high as it needs")
}

// pixels returns the size of the canvas at one pixel per unit.
func (c *canvas) pixels() Size { return Size{int(c.w + .5), int(c.h + .5)} }

// file returns the drawing as a standalone SVG of the given size.
func (c *canvas) file(pixels Size) string {
	var used []string
	for _, s := range c.shapes {
		used = once(used, strings.Fields(s.classes())...)
	}

	style := ""
	for _, r := range styleRules() {
		if r.matches(used) {
			style += r.selector + "{" + r.body + "}"
		}
	}

	return printable(c.svg(fmt.Sprintf(` xmlns="http://www.w3.org/2000/svg" width="%d" height="%d"`,
		pixels.Width, pixels.Height), "<style>"+style+"</style>"+`<rect width="100%" height="100%" fill="`+
		palette()["surface"][0]+`"/>`))
}

// compose arranges the parts from top to bottom.
func (s sheet) compose(width float64) *canvas {
	c := &canvas{w: width, label: s.Title}
	room := width - 2*sheetEdge
	y := sheetEdge
	lines := func(class string, size float64, texts ...string) {
		for _, text := range texts {
			fits := func(line string) bool { return textWidth(line, size) <= room }
			for _, l := range broken(text, fits) {
				c.text(class, "start", sheetEdge, y+size-3, l)
				y += size + 5
			}
		}
	}
	room /= boldWider
	lines("t title", sheetTitle, s.Title)
	room = width - 2*sheetEdge
	lines("ax", 11.5, s.Sub)
	y += 6
	x := sheetEdge
	for _, l := range s.Legend {
		w := 28 + textWidth(l.Text, 11.5) + 18
		if x > sheetEdge && x+w > width-sheetEdge {
			x = sheetEdge
			y += sheetLine
		}

		c.place(swatch(l.Class), x, y)
		c.text("ax", "start", x+28, y+10, l.Text)
		x += w
	}

	if len(s.Legend) > 0 {
		y += sheetLine + 6
	}

	drawing := s.Draw.Draw(room)
	c.place(drawing, sheetEdge, y)
	y += drawing.h + 12
	lines("ax", 11.5, s.Foot...)
	c.h = y + sheetEdge - 12
	return c
}

// sheets returns all charts of a run and their names. The names are in the order of the page, except that
// pictures of paths follow the results, and folded charts come last.
func sheets(v *view) (names []string, all map[string]sheet) {
	all = map[string]sheet{}
	add := func(name string, s sheet) {
		name = untaken(strings.Trim(name, "-"), func(name string) bool { return all[name].Draw != nil })
		names = append(names, name)
		all[name] = s
	}
	var open, folded []Block
	addAll := func(blocks []Block) {
		for _, b := range blocks {
			switch b := b.(type) {
			case Figure:
				add(slug(strings.TrimSuffix(b.ID, "-bars")), v.figureSheet(b))
			case Panels:
				for _, p := range b.Panels {
					add(strings.SplitN(p.ID, "-", 2)[0]+"-"+shortSlug(p.Title), v.panelSheet(b, p))
				}
			case Fold:
				folded = append(folded, b.Blocks...)
			}
		}
	}
	for _, section := range sections(v) {
		open = append(open, section.Blocks...)
	}

	isPath := func(b Block) bool { f, ok := b.(Figure); return ok && f.Path }
	addAll(filter(open, func(b Block) bool { return !isPath(b) }))
	addAll(filter(open, isPath))

	for len(folded) > 0 { // folds may contain folds
		blocks := folded
		folded = nil
		addAll(blocks)
	}

	return names, all
}

// untaken returns stem, with a number appended if the name is taken.
func untaken(stem string, taken func(name string) bool) string {
	name := stem
	for i := 2; taken(name); i++ {
		name = fmt.Sprint(stem, "-", i)
	}

	return name
}

// shortSlug is like slug, but merges repeated dashes.
func shortSlug(s string) string {
	return strings.Join(strings.FieldsFunc(slug(s), func(r rune) bool { return r == '-' }), "-")
}

func (v *view) figureSheet(f Figure) sheet {
	s := sheet{Title: f.Title, Draw: f.Draw}
	if f.Path {
		if f.Cells == nil { // the picture shows a topology, and its title is the topology's name
			s.Title = "Path under test: " + s.Title
		}

		s.Sub, s.Natural, s.Foot = f.Caption, widths["picture"], v.footWords(f.Cells)
		return s
	}

	if f.Cells == nil {
		f.Cells = v.all
	}

	s.Sub, s.Natural, s.Foot = cmp.Or(headOf(v).Lead, "Plan "+v.Run.Plan), wideWidth, v.footWords(f.Cells)
	if f.Whisker != "" {
		s.Foot = slices.Insert(s.Foot, 0, "Whisker: "+f.Whisker)
	}

	for _, l := range f.Legend {
		if strings.HasPrefix(l.Text, suspectWord+":") { // the footer lists the reasons
			l.Text = suspectWord
		}

		s.Legend = append(s.Legend, l)
	}

	return s
}

var colourForm = check.Pattern(`\bc[1-8]\b`)

func (v *view) panelSheet(all Panels, p Figure) sheet {
	s := sheet{
		Title:   all.Title,
		Sub:     joined(" · ", p.Title, p.Caption),
		Draw:    p.Draw,
		Natural: panelWidth * 1.7,
		Foot:    v.footWords(p.Cells),
	}
	for _, l := range all.Legend {
		// Leave out the colours of other cells.
		colour := colourForm().FindString(l.Class)
		if colour == "" || colour == v.class(p.Cells[0].Factors) {
			s.Legend = append(s.Legend, l)
		}
	}
	return s
}

// footWords describes the validity of a chart's numbers, and where and when they were measured. cells is
// nil if the chart shows no numbers.
func (v *view) footWords(cells []*analysis.Cell) []string {
	var out []string
	if cells != nil {
		kinds := distinct(slices.Concat(v.Caveats, caveatsOf(cells)), caveatKind)
		out = append(out, validityWords(cells)+reasonNames(cells)+
			around("; limits: ", strings.Join(kinds, ", "), ""))
	}

	h := headOf(v)
	by := "chokepoint plan " + v.Run.Plan
	wanted := []string{"Run", "Started", "Lab", "Machine"}
	if v.importedFrom() != "" {
		by = "measured by " + v.measuredBy() + ", imported by chokepoint"
		wanted = wanted[:2]
	}

	var facts []string
	for _, f := range h.Meta {
		if slices.Contains(wanted, f.Name) {
			facts = append(facts, strings.ToLower(f.Name)+" "+f.Value)
		}
	}

	return append(out, by+" · "+strings.Join(facts, " · "))
}

func validityWords(cells []*analysis.Cell) string {
	count := map[string]int{}
	for _, c := range cells {
		count[c.Grade]++
	}

	if len(cells) == 1 {
		return "Validity: " + cells[0].Grade + ", " + unit.Count(cells[0].Runs, "run")
	}

	if count[evidence.GradeValid] == len(cells) {
		return fmt.Sprintf("Validity: all %d cells valid", len(cells))
	}

	text := fmt.Sprintf("Validity: %d of %d cells valid", count[evidence.GradeValid], len(cells))
	for _, grade := range []string{evidence.GradeSuspect, evidence.GradeFailed, evidence.GradeNotReached} {
		n := count[grade]
		if n > 0 {
			text += fmt.Sprintf(", %d %s", n, grade)
		}
	}

	return text
}

// reasonNames lists the kinds of reasons for the cells' grades.
func reasonNames(cells []*analysis.Cell) string {
	return bracket(strings.Join(distinct(slices.Concat(each(cells,
		func(c *analysis.Cell) []evidence.Reason { return c.Reasons })...), reasonKind), ", "))
}

func caveatsOf(cells []*analysis.Cell) []record.Caveat {
	return slices.Concat(each(cells, func(c *analysis.Cell) []record.Caveat { return c.Caveats })...)
}

// dense is the number of pixels per unit of a PNG without a requested size, for high-resolution screens. If
// the PNG would then exceed maxDense pixels, it has one pixel per unit. If it would still exceed maxPixels,
// it is refused, because a chart of a thousand cells would need half a gigabyte of memory.
const dense, maxDense, maxPixels = 2, 8e6, 30e6

var errTooLarge = errors.New("it is too large")

// Charts returns the names of a document's charts. The first is the default.
func Charts(d *analysis.Document) []string {
	names, _ := sheets(newView(d))
	return names
}

// Chart renders one chart as "svg" or "png". An empty name selects the first. The chart contains its title,
// legend, units and validity, and the run, machine and date.
func Chart(d *analysis.Document, name, format string, size Size) ([]byte, error) {
	names, all := sheets(newView(d))
	if len(names) == 0 {
		return nil, fmt.Errorf("draw a chart of run %s: it has no numbers", d.Run.ID)
	}

	name = cmp.Or(name, names[0])
	s, ok := all[name]
	if !ok {
		return nil, check.WithHint(fmt.Errorf("run %s has no chart %q", d.Run.ID, name),
			"its charts: "+strings.Join(names, ", "))
	}

	return s.drawn(d.Run.ID, name, format, size)
}

// drawn renders the sheet as "svg" or "png". run and name are used in errors.
func (s sheet) drawn(run, name, format string, size Size) ([]byte, error) {
	c, pixels, unit, err := s.lay(size)
	if err != nil {
		return nil, check.WithHint(fmt.Errorf("draw chart %s of run %s: %w", name, run, err),
			check.HintOf(err))
	}

	if format != "png" {
		return []byte(c.file(pixels)), nil
	}

	if size == (Size{}) && dense*dense*pixels.Width*pixels.Height <= maxDense {
		pixels = Size{dense * pixels.Width, dense * pixels.Height}
		unit = dense
	}

	n := pixels.Width * pixels.Height
	if n > maxPixels {
		return nil, check.WithHint(fmt.Errorf("paint chart %s of run %s: %w: %d million pixels", name, run,
			errTooLarge, n/1e6), "--format svg has no such limit; --size makes it smaller, if it fits")
	}

	data, err := paint(c, pixels, unit)
	if err != nil {
		return nil, fmt.Errorf("paint chart %s of run %s: %v", name, run, err)
	}

	return data, nil
}
