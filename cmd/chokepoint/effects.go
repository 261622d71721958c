package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/model"
	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

func newEffectsCommand(p *program) *cobra.Command {
	var source string
	cmd := &cobra.Command{Use: "effects (RUN | --source ID) [--json]",
		Short: "Show what each factor does to the rate, and which interact",
		Long: "Show by how many times each level of a factor changes the goodput, in the geometric mean\n" +
			"over all settings of the other factors, and which two factors interact: the one does\n" +
			"something else at another level of the other. Of a stored run, with intervals from six\n" +
			"blocks on, or of a published study, whose single figures have none.",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: completeRuns(p, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 0) == (source == "") {
				return &usageError{"effects wants either a RUN or --source",
					"chokepoint list shows the runs, chokepoint catalog sources the studies"}
			}
			c, err := catalogue.Published()
			if err == nil && source != "" {
				err = knownSource(c, source)
			}
			if err != nil {
				return err
			}
			observations, names := model.Observe(c.Filtered(catalogue.Filter{Source: source}))
			if source == "" {
				d, err := loadDocument(cmd.Context(), p.dirs, args[0])
				if err != nil {
					return err
				}
				observations, names = analysis.Observations(d)
			}
			e := model.FindEffects(observations, names)
			if err := p.document(e, effectsText(e)); err != nil {
				return err
			}
			if len(e.Main) == 0 {
				return errors.New("no two rates differ in one factor alone")
			}
			return nil
		}}
	cmd.Flags().StringVar(&source, "source", "", "of the study `ID` of the catalogue")
	return addJSON(cmd, "print one JSON document")
}

func effectsText(e model.Effects) string {
	var b strings.Builder
	rows := [][]string{{"FACTOR", "LEVEL", "AGAINST", "RATE", "INTERVAL", "SETTINGS", "BLOCKS", "VERDICT"}}
	for _, x := range e.Main {
		interval := "-"
		if x.Ratio.Level > 0 {
			interval = unit.Times(x.Ratio.Low) + " to " + unit.Times(x.Ratio.High)
		}
		rows = append(rows, []string{x.Factor, x.Level, x.Against, unit.Times(x.Ratio.Value), interval,
			strconv.Itoa(x.Settings), strconv.Itoa(x.Blocks), x.Verdict})
	}
	if len(rows) > 1 {
		b.WriteString(table(rows, 0))
	}
	for i, x := range e.Interactions {
		if i == 0 {
			b.WriteString("\n")
		}
		b.WriteString(x.Text() + "\n")
	}
	for _, c := range e.Charts {
		most := 0.0
		for _, x := range c.Bars {
			most = max(most, x.GoodputBps)
		}
		rows = nil
		for _, x := range c.Bars {
			rows = append(rows, append(append([]string{"  "}, x.Levels...), bar(x.GoodputBps/most),
				unit.Bitrate(x.GoodputBps).String()))
		}
		fmt.Fprintf(&b, "\nrate by %s\n%s", strings.Join(c.Factors, " and "), table(rows, 0))
	}
	return b.String()
}
