package report

import (
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// BisectionMarkdown writes the log of a bisection. It consists of the answer, and a table with a row for each
// version.
func BisectionMarkdown(x *analysis.Bisection) []byte {
	t := Table{Columns: columns("version", "side", "#boots", "#ratio to good", "#95 % interval")}
	for _, v := range x.Versions {
		row := []string{v.Name, v.Side, strconv.Itoa(v.Boots), "", ""}
		if v.Ratio > 0 {
			row[3] = "×" + unit.Significant(v.Ratio, 4)
			row[4] = "×" + unit.Significant(v.Low, 4) + " to ×" + unit.Significant(v.High, 4)
		}

		if v.Skipped != "" {
			row[1] = "left out: " + v.Skipped
		}

		t.row(each(row, func(text string) TableCell { return TableCell{Text: text} }))
	}

	m := &markdown{}
	m.sections([]Section{{Title: "Bisection " + x.ID, Blocks: []Block{Prose{Text: x.Summary}, t}}})
	return m.text()
}
