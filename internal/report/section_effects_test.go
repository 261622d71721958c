package report

import (
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/model"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
)

// TestEffectChart: each effect and each interaction is a row of the chart and of its table, in a group of its
// own, hollow where nothing was found, with a whisker where there is an interval.
func TestEffectChart(t *testing.T) {
	c, err := catalogue.Published()
	if err != nil {
		t.Fatal(err)
	}

	e := model.FindEffects(model.Observe(c.Filtered(catalogue.Filter{Source: "rb5009"})))
	if len(e.Main) < 4 || len(e.Interactions) == 0 {
		t.Fatalf("%d effects and %d interactions", len(e.Main), len(e.Interactions))
	}

	e.Main[0].Ratio = model.Interval{Value: 1.1, Low: 1.05, High: 1.2, Level: .97}
	var s Section
	s.addEffects(e, "", func(name, level string) string { return name + " " + level })
	f := s.Blocks[0].(Figure)
	rows := f.Draw.(forest).Rows
	if len(rows) != len(e.Main)+len(e.Interactions) || len(f.Table.Rows) != len(rows) {
		t.Fatalf("%d rows, %d of the table, of %d + %d", len(rows), len(f.Table.Rows), len(e.Main),
			len(e.Interactions))
	}

	groups := map[string]int{}
	for i, r := range rows {
		groups[r.Group]++
		x := model.Effect{}
		if i < len(e.Main) {
			x = e.Main[i]
		} else {
			x = e.Interactions[i-len(e.Main)].Effect
		}

		if r.Median != x.Ratio.Value || r.Doubt == x.Found() || r.Whisker != (i == 0) ||
			!strings.HasPrefix(r.Text, f.Table.Rows[i].Cells[3].Text) {
			t.Errorf("row %d: %+v of %+v", i, r, x)
		}
	}

	if len(groups) != 2 || groups[rows[0].Group] != len(e.Main) {
		t.Errorf("groups: %v", groups)
	}

	want := "×1.10 (×1.05–×1.20)"
	if rows[0].Text != want { // others are twice and more: one form for all
		t.Errorf("text: got %q, want %q", rows[0].Text, want)
	}

	for _, r := range f.Table.Rows {
		if !strings.HasPrefix(r.Cells[3].Text, "×") {
			t.Errorf("ratio %q beside ones that begin with ×", r.Cells[3].Text)
		}
	}

	for _, width := range []float64{narrowWidth, wideWidth} {
		svg := f.Draw.Draw(width).svg("", "")
		for group := range groups {
			n := strings.Count(svg, shorten(group, 12.5, width-14))
			if n != 1 {
				t.Errorf("at %v: heading %q stands there %d times", width, group, n)
			}
		}
	}

	if !strings.Contains(f.Caption, "Whisker") || !strings.Contains(f.Caption, "fewer than six blocks") {
		t.Errorf("caption: %s", f.Caption)
	}
}

// TestEffectsOfCiphers: the traffic and each part of the ciphers have a chart of their own, which says of
// what it is.
func TestEffectsOfCiphers(t *testing.T) {
	of := func(work, level, against string) model.Effects {
		return model.Effects{
			Of: work,
			Main: []model.Effect{{
				Factor:   "algorithm",
				Level:    level,
				Against:  against,
				Ratio:    model.Interval{Value: 2},
				Settings: 1,
				Blocks:   1,
			}},
		}
	}
	e := of("", "a", "b")
	e.Ciphers = []model.Effects{of("openssl, hash", "sha256", "sha1"),
		of("go, encrypt and decrypt", "x", "y")}
	var s Section
	effectSection(newView(&analysis.Document{Effects: &e}), &s)
	var got []string
	for _, b := range s.Blocks[0].(Fold).Blocks {
		f := b.(Figure)
		got = append(got, f.ID+" "+f.Table.ID+": "+f.Title)
	}

	want := []string{"effect-ratios effect-table: Goodput at a level ÷ at another",
		"effect-ratios-openssl--hash effect-table-openssl--hash: Speed of openssl, hash, at a level ÷ at another",
		"effect-ratios-go--encrypt-and-decrypt effect-table-go--encrypt-and-decrypt: " +
			"Speed of go, encrypt and decrypt, at a level ÷ at another"}
	if !slices.Equal(got, want) {
		t.Errorf("figures: got %q, want %q", got, want)
	}
}

// TestCannotTellIsNoSameness: of few runs the words say that it cannot be told, whatever the ratio, and of
// enough runs what the data exclude.
func TestCannotTellIsNoSameness(t *testing.T) {
	d := smallDocument()
	k := comparison.Comparison{
		Spread: statistics.Spread{
			Low:      9,
			High:     13,
			N:        3,
			Interval: statistics.IntervalRange,
		},
		Metric:  loadedP50,
		Factors: d.Cells[0].Factors,
		Against: d.Cells[1].Factors,
		Name:    "of the same without tunnel",
		Ratio:   11.4,
		Verdict: statistics.TooFew(),
	}
	wide := k
	wide.Metric = goodput
	wide.N = 8
	wide.Ratio = .87
	wide.Low = .795
	wide.High = .969
	wide.Verdict = statistics.CannotTell
	wide.PValue = .09
	wide.Why = "p = 0.09, corrected for 12 comparisons at once"
	d.Comparisons = []comparison.Comparison{k, wide}
	for name, render := range renderers() {
		if name == "json" || isCSV(name) || brief(name) {
			continue
		}

		text := strings.Join(strings.Fields(string(must(render(d)))), " ")
		for _, want := range []string{"cannot tell (n < 6)", "×0.795–×0.969", "p = 0.09"} {
			if name == "html" || name == "md" {
				want = strings.ReplaceAll(want, "<", "&lt;")
			}

			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q", name, want)
			}
		}

		if strings.Contains(text, "no clear difference") {
			t.Errorf("%s: three runs show no clear difference", name)
		}
	}
}
