// Package report lays out an analysed run for people and for other programs: as a page, as text for a
// terminal, as Markdown for a forum, as CSV and as JSON. It shows what the document says and refuses to
// compute: every number on a page stands in the document, and so does every caveat the reverse. The same
// document gives the same bytes.
package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
)

// Section answers one question about a run. It is made of blocks and holds no markup; renderers draw the
// blocks.
type Section struct {
	ID     string // of its anchor
	Title  string
	Lead   string // one or two sentences: what is shown, and what to mind
	Blocks []Block
}

// Block makes up a section. The page has a template for each kind.
type Block interface{ kind() string }

// Prose holds paragraphs.
type Prose struct{ Text []string }

// Points holds sentences, one below the other.
type Points struct{ Text []string }

// Facts holds a short list of names with their values. Names that run in are headings.
type Facts struct {
	Title string
	RunIn bool
	Items []Fact
}

// Fact names a value, or the reason why it is missing. Aside stands at the right of the value.
type Fact struct {
	Name, Value, Missing string
	Aside                string
	Below                string // lines that belong to it
}

// given returns facts of a list of names with their values, without those that have none.
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

// Item fills one line of a list.
type Item struct {
	Kind     string // the stable word, such as few-runs
	Text     string
	Evidence []string
	Tone     Tone
}

// items makes an item of a kind and a tone of each text.
func items(kind string, tone Tone, texts ...string) []Item {
	return each(texts, func(text string) Item { return Item{Kind: kind, Text: text, Tone: tone} })
}

// Tone tells good news from bad. Renderers use a word or a sign for it as well as a colour.
type Tone string

// Tones.
const (
	Plain Tone = ""
	Good  Tone = "good"
	Doubt Tone = "doubt" // suspect, a caveat
	Bad   Tone = "bad"   // failed, missed
	Quiet Tone = "quiet" // secondary
)

// Table holds rows under columns. Notes holds the caveats of its numbers: cells refer to them by their index.
type Table struct {
	ID, Caption string
	Of          string // what all rows are of, where another table has rows of something else
	Columns     []Column
	Rows        []TableRow
	Notes       []Item
	Common      []Item // what is said of all rows
	Cards       bool   // on a narrow page each row becomes a card
	Folded      bool   // long: closed until asked for
	Sorted      bool   // by any column, where scripts run
}

// Column heads a column.
type Column struct {
	Head    string
	Sub     string // second line: unit, layer
	Numeric bool
	Keep    bool // on one line
	Drop    int  // where there is no room: those of 1 first; 0: never
}

// TableRow holds the cells of one line, and below it the notes that belong to it alone. A row of one cell is
// the heading of those below it.
type TableRow struct {
	Name  string // in full, where the first cell leaves out what rows above say
	Cells []TableCell
	Tone  Tone
	Notes []Item
	Cell  *analysis.Cell // that the row is of
}

// TableCell holds text, with a second, smaller line and a long form of both. A shown number names its metric,
// so that a program can check the page.
type TableCell struct {
	Head      string // on a card, where it is not that of the column
	Text      string
	Href      string // of a page of the site, or of a source
	Class     string // colour of the level it is about
	Pre       string // before the second line: "p99"
	Sub, Long string
	Tone      Tone
	Num       *Number
	More      *Number // the number of the second line
	Mark      []int   // notes of the table, from 0
}

// Number ties a shown number to the document.
type Number struct {
	Cell   string // key of the cell's factors
	Metric string
	Stat   string // median, low or high
	Value  float64
}

// Figure shows a drawing with its title and caption. Table, if any, holds the numbers it was drawn from.
type Figure struct {
	ID, Title, Caption string
	Legend             []LegendItem
	Draw               Drawing
	Table              *Table
	Whisker            string           // what its whiskers show
	Cells              []*analysis.Cell // that it shows; nil: all
	Path               bool             // a picture of a path; without cells, of a topology
	Text               []string         // the same as lines of characters
	Unsaved            bool             // it is not offered as a file
}

// Panels shows small figures of the same kind side by side, each of one cell.
type Panels struct {
	ID, Title, Caption string
	Legend             []LegendItem
	Panels             []Figure
}

// LegendItem explains a colour or sign of a drawing.
type LegendItem struct{ Class, Text string }

// Fold hides blocks until a reader opens it.
type Fold struct {
	Title  string
	Blocks []Block
}

// MetricTables hold the numbers of many tables once, as data: the page's script fills a table when a reader
// opens it.
type MetricTables struct {
	Run    string      `json:"-"`
	Empty  Table       `json:"-"` // the columns of each table
	Names  [][4]string // of a metric: in words, in the document, its scope, its definition
	Words  []string    // intervals, and reasons for a missing number
	Tables []MetricTable
}

// MetricTable holds the metrics of a cell. A row has the indexes of a metric's names and words, the number of
// trials, and median, low and high, each as shown and exact; a row without a number ends with the words.
type MetricTable struct {
	Title string `json:"-"`
	Cell  string
	Rows  [][]any
}

// Drawing draws itself at a width, in units of one CSS pixel. Its colours are classes.
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

// sections returns the page from top to bottom. A section without blocks is left out.
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

// columns makes the heads of a table from "head" or "head|second line", with # before those of numbers.
func columns(heads ...string) []Column {
	out := make([]Column, len(heads))
	for i, h := range heads {
		h, out[i].Numeric = strings.CutPrefix(h, "#")
		out[i].Head, out[i].Sub, _ = strings.Cut(h, "|")
	}
	return out
}

// row adds a row of cells, lists of cells and texts, which may have notes of its own.
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

// none fills a cell that has nothing to show.
var none = TableCell{Text: "–", Tone: Quiet}
