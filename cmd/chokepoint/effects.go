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

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/model"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
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
fewer than six blocks there is no verdict, so there is none for the single values of a
study. Each kind of load is separate. So are the speeds of ciphers, for each library and
each purpose: encryption, hashes, or single key operations.

Several runs are joined, so that what was changed by hand between them is a factor too:
the conditions and the facts of the router in which they differ, such as its clock, or
with --label what you name, with a level for each run. Runs with equal levels add
blocks. A ratio between runs also contains whatever else changed between them, so each
run counts once there. The interaction of such a factor with one that varied within the
runs uses all blocks.`,
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
			for _, part := range e.Parts() {
				text += effectsText(part)
			}

			if err := p.document(e, strings.TrimPrefix(text+runsText(e), "\n")); err != nil {
				return err
			}

			if text == "" {
				return errors.New("no two rates differ in one factor alone")
			}

			return nil
		},
	}
	cmd.Flags().StringVar(&source, "source", "", "use the study `ID` of the catalogue")
	cmd.Flags().StringArrayVar(&labels, "label", nil, "what was set by hand: `FACTOR=LEVEL,LEVEL…` with a\n"+
		"level for each RUN; repeatable")
	cmd.MarkFlagsMutuallyExclusive("source", "label")
	return addJSON(cmd, "print one JSON document")
}

// effectsOfRuns computes the effects of one run, or of several together.
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

// runsText lists the runs behind effects with what was set by hand, and what else differs between them.
func runsText(e model.Effects) string {
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
			if x.Between && !slices.Contains(names, x.Factor) {
				names = append(names, x.Factor)
			}
		}
	}

	if len(names) > 0 {
		text += "\n" + list(names) + ": differs between runs only, so each run counts once, and the ratio " +
			"contains whatever else changed\n"
	}

	if with := singleRuns(e); len(with) > 0 {
		text += "\nan interaction with " + list(with) + " is of one run at each level, so it contains " +
			"whatever else changed between these runs; repeat a run at each level to rule that out\n"
	}

	return text + paragraph(each(e.Differs, func(s string) string { return "also differs: " + s }))
}

// singleRuns names the factors that were set between runs, have one run at a level, and are part of a
// difference that was found within runs.
func singleRuns(e model.Effects) (names []string) {
	runs := map[string]int{} // by factor and level
	for _, r := range e.Runs {
		for name, level := range r.Levels {
			runs[name+"="+level]++
		}
	}

	for _, part := range e.Parts() {
		for _, x := range part.Interactions {
			if x.Between || x.Verdict != statistics.Different {
				continue
			}

			for _, side := range [][3]string{{x.Factor, x.Level, x.Against}, {x.With, x.At, x.Beside}} {
				name := side[0]
				one := runs[name+"="+side[1]] == 1 || runs[name+"="+side[2]] == 1
				if one && !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}

	return names
}

// effectsText lays out the effects of one part, each of its paragraphs below an empty line.
func effectsText(e model.Effects) string {
	var b builder
	rows := grid{{"FACTOR", "LEVEL", "AGAINST", "RATE", "INTERVAL", "SETTINGS", "BLOCKS", "VERDICT"}}
	var apart []string
	for _, x := range e.Main {
		interval := "-"
		if x.Ratio.Level > 0 {
			interval = unit.Times(x.Ratio.Low) + " to " + unit.Times(x.Ratio.High)
		}

		rows.add(x.Factor, x.Level, x.Against, unit.Times(x.Ratio.Value), interval,
			strconv.Itoa(x.Settings), strconv.Itoa(x.Blocks), x.Verdict)
		if x.Apart && !slices.Contains(apart, x.Factor) {
			apart = append(apart, x.Factor)
		}
	}

	if len(rows) > 1 {
		b.WriteString(strings.TrimSuffix("\n"+e.Of, "\n") + "\n" + table(rows, 0))
	}

	for _, name := range apart {
		b.printf("\n%s: no setting has all levels: each ratio is of other settings, and does not "+
			"compare with the next\n", name)
	}

	b.WriteString(paragraph(each(e.Interactions, model.Interaction.Text)))
	for _, c := range e.Charts {
		most := 0.0
		for _, x := range c.Bars {
			most = max(most, x.Rate)
		}

		rows = nil
		for _, x := range c.Bars {
			rows = append(rows, append(append([]string{"  "}, x.Levels...), bar(x.Rate/most),
				metrics.Say(cmp.Or(e.Metric, metrics.Goodput), x.Rate)))
		}

		b.printf("\nrate by %s%s\n%s", strings.Join(c.Factors, " and "), settingsOf(c), table(rows, 0))
	}

	return b.String()
}

// settingsOf names the levels of the other factors at which a chart's bars were measured.
func settingsOf(c model.Chart) string {
	switch {
	case c.At == "":
		return ""
	case c.Settings == 1:
		return ", at " + c.At
	}
	return fmt.Sprintf(", in the mean of %d settings: %s", c.Settings, c.At)
}
