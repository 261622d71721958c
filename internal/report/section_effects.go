package report

import (
	"fmt"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/model"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// effectSection shows what each factor changes, and which factors interact.
func effectSection(v *view, s *Section) {
	if v.Effects != nil {
		for _, e := range v.Effects.Parts() {
			if len(e.Main) == 0 {
				continue
			}

			s.addEffects(e, slug(e.Of), func(name, level string) string {
				if strings.Contains(name, "+") { // factors that change together
					return name + " " + level
				}
				return v.Catalogue.Of(name).Words(level)
			})
		}

		// With many factors, the chart is long, and it is not the purpose of the run.
		s.Blocks = []Block{Fold{Title: "The chart of the effects, and their numbers", Blocks: s.Blocks}}
	}
}

// addEffects draws the ratio by which each level of a factor changes the rate. For interactions, it draws the
// ratio by which an effect differs between the levels of another factor. id keeps the anchors of a page
// unique.
func (s *Section) addEffects(e model.Effects, id string, say func(name, level string) string) {
	s.Lead = "The ratio by which a level of a factor changes the rate: the geometric mean over all " +
		"settings of the other factors with which all its levels were measured, or if there are none, " +
		"both levels."
	id = strings.TrimSuffix("-"+id, "-")
	what := "Goodput"
	switch {
	case e.Of == "":
	case e.Metric == packetRate:
		what = "Rate of " + e.Of
	case e.Metric == goodput:
		what = "Goodput of " + e.Of
	default:
		what = "Speed of " + e.Of + ","
	}

	f := forest{
		Label: what + ": ratios by factor, and their interactions, with their intervals",
		Axis:  "ratio, logarithmic; ×1 = the same",
	}
	t := &Table{
		ID:      "effect-table" + id,
		Folded:  true,
		Caption: "The numbers of this chart",
		Columns: columns("Factor", "Level", "Against", "#Ratio", "#Interval", "#Settings", "#Blocks",
			"Verdict"),
	}
	add := func(x model.Effect, group, class, name, sub, level, against string) {
		ratio := unit.Times(x.Ratio.Value)
		interval := unit.Times(x.Ratio.Low) + "–" + unit.Times(x.Ratio.High)
		row := forestRow{
			estimate: estimate{
				Class:   class,
				Text:    ratio,
				Median:  x.Ratio.Value,
				Low:     x.Ratio.Low,
				High:    x.Ratio.High,
				Whisker: x.Ratio.Level > 0,
				Doubt:   !x.Found(),
				Title:   name + ", " + sub + ": " + ratio + " — " + x.Words(),
			},
			Group: group,
			Name:  name,
			Sub:   sub,
		}
		shown := none
		if row.Whisker {
			row.Text += bracket(interval)
			shown = TableCell{Text: interval, Sub: unit.Significant(x.Ratio.Level*100, 3) + " %"}
		}

		f.Rows = append(f.Rows, row)
		t.row(name, level, against, ratio, shown, x.Settings, x.Blocks,
			TableCell{Text: x.Words(), Sub: pWords(x.PValue)})
	}
	for _, x := range e.Main {
		add(x, "One factor changed", "c1", say(x.Factor, x.Level), "against "+say(x.Factor, x.Against),
			x.Level, x.AgainstWords())
		t.Rows[len(t.Rows)-1].Cells[0].Text = x.Factor
	}

	var said []string
	for _, x := range e.Interactions {
		name := x.Factor + " × " + x.With
		add(x.Effect, "Interactions of two factors", "c2", name,
			fmt.Sprintf("%s : %s, at %s : %s", x.Level, x.Against, x.At, x.Beside),
			x.Level+" at "+x.At, x.Against+" at "+x.Beside)
		said = append(said, upperFirst(x.Text())+".")
	}

	caption := "Of an interaction: by how many times the effect of one factor differs between two " +
		"levels of another. Filled: an effect was found. Hollow: the same, or it cannot be told."
	whiskers := len(filter(f.Rows, func(r forestRow) bool { return r.Whisker }))
	if whiskers > 0 {
		caption += " Whisker: interval of the median over blocks."
	}

	if whiskers < len(f.Rows) {
		caption += " Without a whisker there are fewer than six blocks: whether there is an effect cannot " +
			"be told."
	}

	for _, text := range e.UnusedWords() {
		caption += " " + upperFirst(text) + "."
	}

	s.add(Figure{
		ID:      "effect-ratios" + id,
		Title:   what + " at a level ÷ at another",
		Caption: caption,
		Draw:    f,
		Table:   t,
		Legend:  []LegendItem{{"bar c1", "one factor"}, {"bar c2", "interaction of two"}},
	})
	if len(said) > 0 {
		s.add(Fold{Title: "The interactions in words", Blocks: []Block{Points{said}}})
	}
}
