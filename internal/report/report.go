// Package report renders an analysed run for people and for other programs: as an HTML page, as text for a
// terminal, as Markdown for a forum, as CSV and as JSON. It computes no results. Every number and caveat on a
// page is in the document, and the page shows every caveat of the document. The output depends only on the
// document.
package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Section answers one question about a run. Its blocks contain no markup; renderers draw them.
type Section struct {
	ID     string // for the anchor
	Title  string
	Lead   string // one or two sentences: what is shown, and what the reader should know about that
	Blocks []Block
}

// Block is a part of a section. The page has a template for each kind.
type Block interface{ kind() string }

// Prose holds paragraphs.
type Prose struct{ Text []string }

// Points holds sentences. Each is shown on its own line.
type Points struct{ Text []string }

// Facts holds a short list of names and values. If RunIn is set, each name is a heading on the line of its
// value.
type Facts struct {
	Title string
	RunIn bool
	Items []Fact
}

// Fact is a name with a value, or with the reason why the value is missing. Aside is shown to the right of
// the value.
type Fact struct {
	Name, Value, Missing string
	Aside                string
	Below                string // further lines below the value
}

// given converts pairs of name and value to facts. It omits empty values.
func given(texts ...string) (out []Fact) {
	for pair := range slices.Chunk(texts, 2) {
		if pair[1] != "" {
			out = append(out, Fact{Name: pair[0], Value: pair[1]})
		}
	}
	return out
}

// List holds findings, reasons and caveats.
type List struct {
	Title string
	Items []Item
}

// Item is one line of a list.
type Item struct {
	Kind     string // stable identifier, such as few-runs
	Text     string
	Evidence []string
	Tone     Tone
}

// items returns an item with the given kind and tone for each text.
func items(kind string, tone Tone, texts ...string) []Item {
	return each(texts, func(text string) Item { return Item{Kind: kind, Text: text, Tone: tone} })
}

// Tone separates good news from bad. Renderers show it with a word or sign, not only with a colour.
type Tone string

// Values of Tone.
const (
	Plain Tone = ""
	Good  Tone = "good"
	Doubt Tone = "doubt" // suspect, a caveat
	Bad   Tone = "bad"   // failed, missed
	Quiet Tone = "quiet" // secondary
)

// Table holds rows of cells. Notes holds the caveats of the numbers in the table. Cells refer to notes by
// index.
type Table struct {
	ID, Caption string
	Of          string // subject of the rows, if similar tables have different subjects
	Columns     []Column
	Rows        []TableRow
	Notes       []Item
	Common      []Item // notes that apply to all rows
	Cards       bool   // on a narrow page, show each row as a card
	Folded      bool   // collapsed initially, because it is long
	Sorted      bool   // the page's script lets the reader sort by any column
}

// Column is the heading of a column.
type Column struct {
	Head    string
	Sub     string // second line: unit, layer
	Numeric bool
	Keep    bool // do not break lines
	Drop    int  // order in which columns are dropped if space is short, from 1; 0 means never
}

// TableRow is one line of a table, with the notes that apply only to this line. A row with a single cell is a
// heading for the rows below it.
type TableRow struct {
	Name  string // full name, if the first cell omits what the rows above it show
	Cells []TableCell
	Tone  Tone
	Notes []Item
	Cell  *analysis.Cell // the cell that the row describes
}

// TableCell holds a text, a smaller second line, and a long text that is shown on hover. Num and More
// identify the numbers that are shown, so that a program can check the page.
type TableCell struct {
	Head      string // heading on a card, if it differs from the column's heading
	Text      string
	Href      string // address of a page of the site, or of a source
	Class     string // colour of the level
	Pre       string // text before the second line, such as "p99"
	Sub, Long string
	Tone      Tone
	Num       *Number
	More      *Number // number in the second line
	Mark      []int   // indexes into Table.Notes
}

// Number identifies a shown number in the document.
type Number struct {
	Cell   string // key of the cell's factors
	Metric string
	Stat   string // median, low or high
	Value  float64
}

// Figure is a drawing with a title and a caption. Table, if not nil, holds the numbers in the drawing.
type Figure struct {
	ID, Title, Caption string
	Legend             []LegendItem
	Draw               Drawing
	Table              *Table
	Whisker            string           // what the whiskers show
	Cells              []*analysis.Cell // the cells that it shows; nil means all
	Path               bool             // a picture of a path or, if Cells is nil, of a topology
	Text               []string         // the drawing as text
	Unsaved            bool             // the page does not offer to save it
}

// Panels shows small figures of the same kind side by side, one per cell.
type Panels struct {
	ID, Title, Caption string
	Legend             []LegendItem
	Panels             []Figure
}

// LegendItem explains a colour or symbol.
type LegendItem struct{ Class, Text string }

// Fold holds blocks that are hidden until the reader expands it.
type Fold struct {
	Title  string
	Blocks []Block
}

// MetricTables stores the numbers of many tables as data, without repetition. The page's script fills a table
// when the reader opens it.
type MetricTables struct {
	Run    string      `json:"-"`
	Empty  Table       `json:"-"` // the columns of each table
	Names  [][4]string // per metric: display name, name in the document, scope, definition
	Words  []string    // intervals, and reasons for a missing number
	Tables []MetricTable
}

// MetricTable holds the metrics of a cell. A row consists of an index into Names, an index into Words and the
// number of trials. Then it has the median, low and high, each both formatted and exact. A row without a
// number ends after the index into Words.
type MetricTable struct {
	Title string `json:"-"`
	Cell  string
	Rows  [][]any
}

// Drawing draws itself at a width in CSS pixels. Its shapes have classes instead of colours.
type Drawing interface{ Draw(width float64) *canvas }

func (Prose) kind() string  { return "prose" }
func (Points) kind() string { return "points" }
func (Facts) kind() string  { return "facts" }
func (List) kind() string   { return "list" }
func (Table) kind() string  { return "table" }
func (Figure) kind() string { return "figure" }
func (Panels) kind() string { return "panels" }
func (Fold) kind() string   { return "fold" }

func (MetricTables) kind() string { return "metrics" }

// sections returns the sections of the page in order. It omits sections without blocks.
func sections(v *view) []Section {
	var out []Section
	for _, of := range []struct {
		id, title string
		build     func(*view, *Section)
	}{
		{"requirements", "Requirements", missedSection},
		{"diagnosis", diagnosisTitle, diagnosisSection},
		{"two-ends", "What holds it back, by what both ends see?", blackboxSection},
		{"search", "What is the highest rate without loss?", searchSection},
		{"goodput", "How fast is a transfer?", goodputSection},
		{"packets", "How many packets per second?", packetSection},
		{"results", "Results", resultSection},
		{"paths", "Path under test", pathSection},
		{"dependence", "What does it depend on?", curveSection},
		{"scaling", "What do more of them bring?", scalingSection},
		{"soak", "Does it stay so for hours?", soakSection},
		{"ciphers", "Which cipher suits the CPU?", cipherSection},
		{"latency", "What does load do to latency?", latencySection},
		{"time", "Is it steady, and which core is busy?", timelineSection},
		{"comparisons", "What does it cost?", comparisonSection},
		{"effects", "What does each factor do?", effectSection},
		{"findings", "Findings", findingSection},
		{"requirements", "Requirements", metSection},
		{"skipped", "Not measured", skippedSection},
		{"method", "Method", methodSection},
		{"environment", "Environment", environmentSection},
		{"metrics", "Every metric of every cell", metricSection},
		{"trials", "Every trial", trialSection},
	} {
		s := Section{ID: of.id, Title: of.title}
		of.build(v, &s)
		if len(s.Blocks) > 0 {
			out = append(out, s)
		}
	}
	return out
}

func (s *Section) add(blocks ...Block) { s.Blocks = append(s.Blocks, blocks...) }

// addTables adds the tables that have rows.
func (s *Section) addTables(tables ...Table) {
	for _, t := range filled(tables...) {
		s.add(t)
	}
}

// list adds a list unless it is empty.
func (s *Section) list(title string, items []Item) { s.add(listed(title, items)...) }

// fold adds blocks that are hidden until the reader expands them, unless there are none.
func (s *Section) fold(title string, blocks ...Block) {
	if len(blocks) > 0 {
		s.add(Fold{title, blocks})
	}
}

// listed returns a list as a block, or no block if the list is empty.
func listed(title string, items []Item) []Block {
	if len(items) == 0 {
		return nil
	}
	return []Block{List{title, items}}
}

// columns parses headings of the form "head" or "head|second line". A heading with the prefix # belongs to a
// column of numbers.
func columns(heads ...string) []Column {
	out := make([]Column, len(heads))
	for i, h := range heads {
		h, out[i].Numeric = strings.CutPrefix(h, "#")
		out[i].Head, out[i].Sub, _ = strings.Cut(h, "|")
	}
	return out
}

// row appends a row. Each part is a TableCell, a []TableCell, or a value that is formatted as text.
func (t *Table) row(parts ...any) *TableRow {
	var r TableRow
	for _, p := range parts {
		switch p := p.(type) {
		case TableCell:
			r.Cells = append(r.Cells, p)
		case []TableCell:
			r.Cells = append(r.Cells, p...)
		default:
			r.Cells = append(r.Cells, TableCell{Text: fmt.Sprint(p)})
		}
	}

	t.Rows = append(t.Rows, r)
	return &t.Rows[len(t.Rows)-1]
}

// cellName shows the name of a cell of the run, and its factors on hover.
func cellName(name string, f record.Factors) TableCell { return TableCell{Text: name, Long: f.Key()} }

// none is a cell without content.
var none = TableCell{Text: "–", Tone: Quiet}
