package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// soakSection shows whether performance stays constant for hours.
func soakSection(v *view, s *Section) {
	for _, k := range v.Soaks {
		s.add(List{Title: soakTitle(k), Items: soakItems(k)})
	}
}

func soakTitle(k analysis.Soak) string {
	return fmt.Sprintf("%s: %s in %s h", k.Label, unit.Count(k.Windows, "window"),
		unit.Significant(k.Hours, 2))
}

func soakItems(k analysis.Soak) []Item {
	throttle := Item{Kind: "throttle", Text: "no window was held back by heat or power", Tone: Good}
	switch unseen := bracket(k.UnwatchedWhy); {
	case k.Throttled > 0:
		throttle.Text = plural(k.Throttled, "window was", "windows were") +
			" held back by heat or power"
		throttle.Tone = Doubt
	case k.Unwatched == k.Windows:
		throttle.Text = "heat and power were not watched" + unseen
		throttle.Tone = Quiet
	case k.Unwatched > 0:
		throttle.Text += "; " + unit.Count(k.Unwatched, "window") + " not watched" + unseen
	}

	out := []Item{throttle}
	if k.Failed > 0 {
		out = append(out, items("failed", Bad, unit.Count(k.Failed, "window")+" failed")...)
	}

	for _, t := range k.Trends {
		tone := Good
		if t.Real {
			tone = Doubt
		}

		out = append(out, items(t.Kind, tone, t.Text)...)
	}

	return append(out, items("not watched", Quiet, k.Missing...)...)
}

// soakLines returns the content of soakSection as lines, for output without sections.
func soakLines(v *view) []Item {
	return slices.Concat(each(v.Soaks, func(k analysis.Soak) []Item {
		return about(soakTitle(k), soakItems(k))
	})...)
}

// soakItem reports on one line whether performance changed during a soak.
func soakItem(k analysis.Soak) Item {
	bad := filter(soakItems(k), func(it Item) bool { return it.Tone == Doubt || it.Tone == Bad })
	texts := each(bad, func(it Item) string { return it.Text })
	if len(k.Trends) == 0 {
		texts = append(texts, k.Missing...)
	}

	if len(texts) == 0 {
		return Item{Kind: soakTitle(k), Text: "no trend beyond chance", Tone: Good}
	}

	return Item{Kind: soakTitle(k), Text: strings.Join(texts, "; "), Tone: Doubt}
}

// scalingSection shows what limits the gain from scaling.
func scalingSection(v *view, s *Section) {
	s.Lead = "The Universal Scalability Law, fitted to the medians: contention is the share that only one " +
		"can do at a time, coherence what each costs each other one."
	t := Table{
		ID: "scaling-table",
		Columns: columns("Scaled", "Factor", "#One carries", "#Contention",
			"#Coherence", "#Most at", "#R²"),
		Caption: "X(N) = one × N ÷ (1 + contention × (N − 1) + coherence × N × (N − 1)); from six levels on.",
	}
	for _, k := range v.Scaling {
		peak := none
		if k.Peak > 0 {
			peak = TableCell{Text: fmt.Sprintf("%.1f", k.Peak), Sub: v.text(goodput, k.PeakBps)}
		}

		t.row(TableCell{Text: k.Label, Long: k.Text}, k.Factor, v.text(goodput, k.SingleBps),
			unit.Percent(k.Contention), unit.Percent(k.Coherence), peak, fmt.Sprintf("%.3f", k.R2))
	}

	s.addTables(t)
}

func scalingLines(v *view) []Item {
	return each(v.Scaling, func(k analysis.Scaling) Item {
		return Item{Kind: "scaling", Text: joined(": ", k.Label, k.Text)}
	})
}
