package tuning

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Text returns the result as text for the terminal.
func (r *Result) Text() string {
	var b strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "as found: %s\n", f)
	}

	if len(r.Tried) > 0 {
		b.WriteString("\n" + r.triedTable())
	}

	nothing := ""
	switch {
	case r.Ended != "done":
		nothing = "The search was " + r.Ended + ": nothing is proposed."
	case len(r.Kept) == 0 && slices.ContainsFunc(r.Tried, func(j Scored) bool { return j.Why == noTime }):
		nothing = "Nothing is proposed: a longer --for would try and check more."
	case len(r.Kept) == 0:
		nothing = "Nothing is proposed: no change helps by more than " +
			unit.Percent(statistics.SmallestRelevant) + "."
	}

	if nothing != "" {
		return b.String() + "\n" + nothing + "\n"
	}

	fmt.Fprintf(&b, "\nProposed: %s\n\n%s", r.Kept, r.beforeAfter())
	for _, c := range r.Kept {
		if c.Risk != "" {
			fmt.Fprintf(&b, "risk of %s: %s\n", c, c.Risk)
		}
	}

	b.WriteString(r.permanentText())
	return b.String()
}

func tabbed(rows [][]string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}

	w.Flush() // cannot fail, because it writes to memory
	return b.String()
}

// triedTable returns a table with a line for each tried set of changes, by round.
func (r *Result) triedTable() string {
	rows := [][]string{{"TRIED", "AGAINST", "RATE", "INTERVAL", "PREDICTED AT MOST", "VERDICT"}}
	round := ""
	for _, j := range r.Tried {
		if j.Round != round {
			round = j.Round
			rows = append(rows, []string{round + ":"})
		}

		rate := "–"
		interval := "–"
		e := j.worst()
		if e != nil {
			rate = "× " + unit.Significant(j.Gain, 3)
			interval = intervalOf(e.Comparison)
		}

		added := j.added()
		against := "as found"
		verdict := j.Verdict
		name := added.String()
		if len(j.Against) > 0 {
			name = "+ " + name
			against = "the rest of it"
		}

		if len(added) > 2 {
			name = unit.Count(len(added), "change") + " at once"
		}

		if j.Why != "" {
			verdict += ": " + j.Why
		}

		predicted := "–"
		if len(added) == 1 && added[0].GainAtMost > 0 {
			predicted = "× " + unit.Significant(added[0].GainAtMost, 3)
		}

		rows = append(rows, []string{"  " + name, against, rate, interval, predicted, verdict})
	}

	return tabbed(rows)
}

// added returns the changes of the set that the reference set lacks.
func (j *Scored) added() Set {
	return slices.DeleteFunc(slices.Clone(j.Set), func(c Change) bool {
		return len(j.Against.without(c)) < len(j.Against)
	})
}

// worst returns the effect on a rate whose interval has the smallest lower end. It returns nil if no rate was
// compared.
func (j *Scored) worst() *Effect {
	var out *Effect
	for i := range j.Effects {
		e := &j.Effects[i]
		if !slices.Contains(delays[:], e.Metric) && !e.Difference && (out == nil || e.Low < out.Low) {
			out = e
		}
	}
	return out
}

func intervalOf(c comparison.Comparison) string {
	return unit.Significant(c.Low, 3) + "…" + unit.Significant(c.High, 3)
}

// beforeAfter returns a table of the kept changes' effects, as measured in new blocks, and of the predicted
// gains.
func (r *Result) beforeAfter() string {
	rows := [][]string{{"CELL", "METRIC", "BEFORE", "AFTER", "AFTER ÷ BEFORE", "INTERVAL", "VERDICT"}}
	for _, e := range r.Final.Effects {
		m := metrics.Of(e.Metric)
		ratio := "× " + unit.Significant(e.Ratio, 3)
		interval := intervalOf(e.Comparison)
		if e.Difference {
			ratio = "–"
			interval = "–"
		}

		rows = append(rows, []string{e.Cell, m.Label, unit.ScaleOf(m.Unit, e.Before).Text(e.Before),
			unit.ScaleOf(m.Unit, e.After).Text(e.After), ratio, interval, e.Verdict})
	}

	text := tabbed(rows)
	predicted := 1.0
	known := false
	for _, c := range r.Kept {
		if c.GainAtMost > 0 {
			predicted = predicted * c.GainAtMost
			known = true
		}
	}

	real := "× " + unit.Significant(r.Final.Gain, 3)
	if known {
		return text + fmt.Sprintf("predicted gain: at most × %s, real: %s\n", unit.Significant(predicted, 3),
			real)
	}

	return text + "predicted gain: no finding bounds it, real: " + real + "\n"
}

func (r *Result) permanentText() string {
	if len(r.Permanent) == 0 {
		return ""
	}

	var b strings.Builder
	b.WriteString("\nTo make it permanent (words in capitals are yours to fill in):\n")
	for _, system := range append([]string{""}, Systems[:]...) {
		head := false
		for _, p := range r.Permanent {
			if p.System != system {
				continue
			}

			if !head && system != "" {
				fmt.Fprintf(&b, "  %s\n", system)
			}

			head = true
			for _, c := range p.Commands {
				fmt.Fprintf(&b, "    %s\n", c)
			}
		}
	}

	return b.String()
}
