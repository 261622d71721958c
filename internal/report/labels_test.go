package report

import (
	"encoding/csv"
	"encoding/xml"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// labelled is a document of n cells without factors to speak of, all of one label.
func labelled(label string, n int) *analysis.Document {
	d := &analysis.Document{
		Format: record.Format,
		Run: analysis.RunHead{
			RunHead: record.RunHead{ID: "20261121-153012-0000", Status: record.RunDone},
			Plan:    "quick",
		},
	}
	for i := range n {
		f := record.Factors{}
		if i > 0 {
			f["streams"] = fmt.Sprint(i)
		}

		d.Cells = append(d.Cells, analysis.Cell{
			Cell: metrics.Cell{
				Factors: f,
				Label:   label,
				Grade:   "valid",
				Metrics: map[string]statistics.Value{goodput: statistics.Summarise([]float64{3e8, 4e8})},
			},
			Runs: 2,
		})
		d.Trials = append(d.Trials, analysis.TrialView{
			Assignment: record.Assignment{
				Block:   1,
				Index:   i,
				Kind:    record.RowLoad,
				Factors: f,
			},
			TrialHead: record.TrialHead{ID: fmt.Sprintf("b1-r%02d.1", i)},
			Grade:     "valid",
			Metrics:   map[string]float64{goodput: 3e8},
		})
	}
	return d
}

// FuzzLabels: whatever a cell is called, and however many there are, each form can be written, and none lets
// a label break its rows.
func FuzzLabels(f *testing.F) {
	for _, label := range []string{"", " ", "\t", "\n\n", "\x1b[2J", "\u202e", "a|b", "=1+1", "“é”\x00",
		"\xff\xfe", strings.Repeat("long ", 60), strings.Repeat("x", 300), "</td><script>", "日本語", "a\r\nb"} {
		for _, n := range []int{0, 1, 2, 9} {
			f.Add(label, n, 80)
		}
	}

	f.Fuzz(func(t *testing.T, label string, n, width int) {
		n = max(n, 0) % 12
		d := labelled(label, n)
		for _, w := range []int{0, 40, 60, 80, 200, width % 1000} {
			text := Text(d, w, w == 200)
			if !utf8.ValidString(text) {
				t.Errorf("width %d: not UTF-8", w)
			}
		}

		for name, render := range renderers() {
			if _, err := render(d); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}

		bars := 0 // of the table's rows
		for line := range strings.Lines(string(must(Markdown(d)))) {
			switch n := strings.Count(strings.ReplaceAll(line, `\|`, ""), "|"); {
			case !strings.HasPrefix(line, "|"):
				bars = 0
			case bars == 0:
				bars = n
			case bars != n:
				t.Errorf("Markdown: a row of %d bars in a table of %d: %q", n, bars, line)
			}
		}

		table := csv.NewReader(strings.NewReader(strings.TrimPrefix(string(must(CSVLong(d))), "\uFEFF")))
		if rows, err := table.ReadAll(); err != nil || len(rows) != n+1 {
			t.Errorf("CSV: %d rows of %d trials, %v", len(rows), n, err)
		}

		elements(t, must(HTML(d)), func(xml.StartElement) {})
	})
}
