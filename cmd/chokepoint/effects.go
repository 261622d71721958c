package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/model"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

func newEffectsCommand(p *program) *cobra.Command {
	var source string
	cmd := &cobra.Command{
		Use:   "effects (RUN | --source ID)",
		Short: "Show what each factor does to the rate, and which interact",
		Long: `Show the factor by which each level of a factor changes the rate, as the geometric mean
over the settings of the other factors that have all its levels. Also show which two
factors interact: the effect of one depends on the level of the other. The data is a
stored run or a published study. With fewer than six blocks there is no verdict, so
there is none for the single values of a study. Each kind of load is separate. So are
the speeds of ciphers, for each library and each purpose: encryption, hashes, or one
use of keys.`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeRuns(p, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 0) == (source == "") {
				return app.Usage("chokepoint list shows the runs, chokepoint catalog sources the studies",
					"effects wants either a RUN or --source")
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
			} else {
				d, err := p.Dirs.Document(cmd.Context(), args[0])
				if err != nil {
					return err
				}

				e = analysis.Effects(d, math.MaxInt)
			}

			text := ""
			for _, part := range e.Parts() {
				text += effectsText(part)
			}

			if err := p.document(e, strings.TrimPrefix(text, "\n")); err != nil {
				return err
			}

			if text == "" {
				return errors.New("no two rates differ in one factor alone")
			}

			return nil
		},
	}
	cmd.Flags().StringVar(&source, "source", "", "use the study `ID` of the catalogue")
	return addJSON(cmd, "print one JSON document")
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
