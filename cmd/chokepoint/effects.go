package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/model"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

func newEffectsCommand(p *program) *cobra.Command {
	var source string
	var labels []string
	cmd := &cobra.Command{
		Use:   "effects [RUN… | --source ID]",
		Short: "Show what each factor does to the rate, and which interact",
		Long: `Show the factor by which each level of a factor changes the rate, as the geometric mean
over the settings of the other factors that have all its levels. Also show which two
factors interact: the effect of one depends on the level of the other. The data is a
stored run, the latest unless RUN is given, several runs, or a published study. With
fewer than six blocks there is no verdict; a study, which has single values, therefore
gets none. Each kind of load is shown separately, as are the speeds of ciphers, by
library and purpose: encryption, hashes, or single key operations.

Several runs are joined, so that what changed between them becomes a factor, too: the
conditions and properties of the router in which they differ, such as its clock, or what
--label names, with a level for each run. Runs with equal levels add blocks. A ratio
between runs also contains whatever else changed between them. In such a ratio, and in
the interactions of such a factor, each run therefore counts only once.`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: completeRuns(p, 1000),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && source != "" {
				return app.Usage("chokepoint list shows the runs, chokepoint catalog sources the studies",
					"effects wants either a RUN or --source")
			}

			if len(args) == 0 && source == "" {
				args = []string{"latest"}
			}

			c, err := catalogue.Published()
			if err == nil {
				err = knownSource(c, source)
			}

			if err != nil {
				return err
			}

			var e model.Effects
			if source != "" {
				e = analysis.PublishedEffects(c, source)
			} else if e, err = p.effectsOfRuns(cmd.Context(), args, labels); err != nil {
				return err
			}

			text := ""
			width := p.width()
			for _, part := range e.Parts() {
				text += effectsText(part, width)
			}

			if err := p.document(e, strings.TrimPrefix(text+runsText(e, width), "\n")); err != nil {
				return err
			}

			if text == "" {
				return errors.New("no two rates differ in one factor alone")
			}

			return nil
		},
	}
	cmd.Flags().StringVar(&source, "source", "", "use the study `ID` of the catalogue")
	cmd.Flags().StringArrayVar(&labels, "label", nil, "a factor that was set by hand, "+
		"`FACTOR=LEVELS`, with a level for each RUN, between commas; may be repeated")
	cmd.MarkFlagsMutuallyExclusive("source", "label")
	return addJSON(cmd, "print one JSON document")
}

// effectsOfRuns computes the effects of one run, or of several runs together.
func (p *program) effectsOfRuns(ctx context.Context, names, labels []string) (e model.Effects, err error) {
	byHand := map[string][]string{}
	for _, label := range labels {
		name, levels, ok := strings.Cut(label, "=")
		all := strings.Split(levels, ",")
		switch {
		case !ok || name == "" || slices.Contains(all, ""):
			return e, app.Usage("write it as clock=auto,1400, with a level for each run",
				"--label %q is not FACTOR=LEVEL,LEVEL…", label)
		case byHand[name] != nil:
			return e, app.Usage("name each factor once", "--label %s is given twice", name)
		case len(all) != len(names):
			return e, app.Usage("the levels are in the order of the runs", "--label %s has %s for %s", name,
				unit.Count(len(all), "level"), unit.Count(len(names), "run"))
		}

		byHand[name] = all
	}

	var docs []*analysis.Document
	for _, name := range names {
		d, err := p.Dirs.Document(ctx, name)
		if err != nil {
			return e, err
		}

		same := func(other *analysis.Document) bool { return other.Run.ID == d.Run.ID }
		if slices.ContainsFunc(docs, same) {
			return e, app.Usage("name each run once; chokepoint list shows them",
				"%s is run %s, which is named twice", name, d.Run.ID)
		}

		docs = append(docs, d)
	}

	if len(docs) == 1 && len(labels) == 0 {
		return analysis.Effects(docs[0]), nil
	}

	e, err = analysis.EffectsOfRuns(docs, byHand)
	if err != nil {
		err = check.WithHint(fmt.Errorf("join runs: %w", err), "name what was the same in each whole run")
	}

	return e, err
}

// runsText lists the runs behind effects, with the levels that were set by hand in each, and other
// differences between the runs.
func runsText(e model.Effects, width int) string {
	var lines []string
	for _, r := range e.Runs {
		var levels []string
		for _, name := range slices.Sorted(maps.Keys(r.Levels)) {
			levels = append(levels, name+" "+r.Levels[name])
		}

		lines = append(lines, "run "+r.Run+": "+cmp.Or(list(levels), "nothing is known to be set by hand"))
	}

	text := paragraph(lines)
	var names []string
	for _, part := range e.Parts() {
		for _, x := range part.Main {
			if x.Between {
				names = append(names, x.Factor)
			}
		}
	}

	if len(names) > 0 {
		text += folded(width, list(distinct(names))+": differs between runs only, so each run counts once, "+
			"in interactions too, and the ratio contains whatever else changed")
	}

	return text + folded(width, each(e.Differs, func(s string) string { return "also differs: " + s })...)
}

// effectsText formats the effects on one kind of load or cipher for a width (0 means unlimited). An empty
// line precedes each paragraph.
func effectsText(e model.Effects, width int) string {
	var b builder
	if len(e.Main) > 0 {
		b.WriteString(strings.TrimSuffix("\n"+e.Of, "\n") + "\n" + mainText(e.Main, width))
	}

	var apart []string
	for _, x := range e.Main {
		if x.Apart {
			apart = append(apart, x.Factor)
		}
	}

	for _, name := range distinct(apart) {
		b.WriteString(folded(width, name+": no setting has all levels: each ratio is of other settings, "+
			"and does not compare with the next"))
	}

	b.WriteString(folded(width, e.UnusedWords()...))
	if slices.ContainsFunc(e.Main, func(x model.Effect) bool { return x.Suspect }) {
		b.WriteString(folded(width,
			"suspect: a cell of the ratio is suspect; chokepoint show --full has the reasons"))
	}

	b.WriteString(folded(width, each(e.Interactions, func(x model.Interaction) string {
		if x.Suspect {
			return x.Text() + "; suspect"
		}
		return x.Text()
	})...))
	for _, c := range e.Charts {
		b.WriteString(chartText(e, c, width))
	}

	return b.String()
}

// mainText formats effects as a table or, if that does not fit, as sentences.
func mainText(effects []model.Effect, width int) string {
	const interval, settings = 4, 5 // columns
	rows := heading("FACTOR | LEVEL | AGAINST | RATE | INTERVAL | SETTINGS | BLOCKS | VERDICT")
	var sentences []string
	intervals := false
	for _, x := range effects {
		r := []string{x.Factor, x.Level, x.AgainstWords(), unit.Times(x.Ratio.Value), "-",
			strconv.Itoa(x.Settings), strconv.Itoa(x.Blocks), x.Words()}
		if x.Ratio.Level > 0 {
			intervals = true
			r[interval] = unit.Times(x.Ratio.Low) + " to " + unit.Times(x.Ratio.High)
		}

		rows = append(rows, r)
		sentences = append(sentences, fmt.Sprintf("%s: %s against %s %s, interval %s, %s, %s: %s", r[0], r[1],
			r[2], r[3], r[interval], unit.Count(x.Settings, "setting"), unit.Count(x.Blocks, "block"), r[7]))
	}

	text := table(rows, 0)
	for _, column := range []int{settings, interval} {
		if width == 0 || widest(text) <= width {
			return text
		}

		if column == interval && intervals {
			break
		}

		for i, r := range rows {
			rows[i] = slices.Delete(r, column, column+1)
		}

		text = table(rows, 0)
	}

	if widest(text) <= width {
		return text
	}

	return strings.TrimPrefix(folded(width, sentences...), "\n")
}

// chartText draws a chart whose bars leave space for names and rates.
func chartText(e model.Effects, c model.Chart, width int) string {
	most := 0.0
	for _, x := range c.Bars {
		most = max(most, x.Rate)
	}

	var text string
	for length := 1.0; ; length *= .8 {
		var rows grid
		for _, x := range c.Bars {
			rows = append(rows, append(append([]string{"  "}, x.Levels...), bar(length*x.Rate/most),
				metrics.Say(cmp.Or(e.Metric, metrics.Goodput), x.Rate)))
		}

		text = table(rows, 0)
		if width == 0 || length < .1 || widest(text) <= width {
			break
		}
	}

	return folded(width, "rate by "+strings.Join(c.Factors, " and ")+settingsOf(c)) + text
}

// widest returns the number of characters in the longest line.
func widest(text string) int {
	n := 0
	for line := range strings.Lines(text) {
		n = max(n, utf8.RuneCountInString(strings.TrimRight(line, " \n")))
	}
	return n
}

// folded returns a paragraph with lines wrapped to a width (0 means unlimited).
func folded(width int, lines ...string) string {
	var out []string
	for _, text := range lines {
		out = append(out, wrapped(text, width)...)
	}
	return paragraph(out)
}

// settingsOf describes the levels of the other factors for a chart.
func settingsOf(c model.Chart) string {
	switch {
	case c.At == "":
		return ""
	case c.Settings == 1:
		return ", at " + c.At
	}
	return fmt.Sprintf(", in the mean of %d settings: %s", c.Settings, c.At)
}
