package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

type compareOptions struct {
	a, b             string
	json             bool
	failOnRegression bool
}

func newCompareCommand(p *program) *cobra.Command {
	var o compareOptions
	cmd := &cobra.Command{
		Use:   "compare RUN RUN [--json] [--fail-on-regression]",
		Short: "Compare two stored runs, made at different times",
		Long: "Compare two stored runs, the second with the first: rates, loss, retransmits and\n" +
			"latency of each cell that both measured, and everything else that differs between\n" +
			"them. A difference with more than one candidate cause is called confounded. There\n" +
			"is no verdict on cells with fewer than six runs on either side.",
		Args:              exactArgs("RUN", "RUN"),
		ValidArgsFunction: completeRuns(p, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.a, o.b = args[0], args[1]
			return runCompare(cmd.Context(), o, p.dirs, p.streams)
		},
	}
	cmd.Flags().BoolVar(&o.json, "json", false, "print one JSON document")
	cmd.Flags().BoolVar(&o.failOnRegression, "fail-on-regression", false,
		"exit with 4 if a cell is worse in the second run, confounded or not, or has no number there")
	return cmd
}

func runCompare(ctx context.Context, o compareOptions, d dirs, s streams) error {
	a, err := loadDocument(ctx, d, o.a)
	if err != nil {
		return err
	}
	b, err := loadDocument(ctx, d, o.b)
	if err != nil {
		return err
	}
	if a.Run.ID == b.Run.ID {
		return &usageError{fmt.Sprintf("%s and %s are the same run, %s", o.a, o.b, a.Run.ID),
			"chokepoint list shows the runs"}
	}
	c := analysis.CompareRuns(a, b)
	if o.json {
		err = printJSON(s.Out, c)
	} else {
		err = printComparison(s, c, labelsOf(a, b))
	}
	if err != nil || !o.failOnRegression {
		return err
	}
	return regressions(c, labelsOf(a, b))
}

// labelsOf names the cells of documents for people.
func labelsOf(docs ...*analysis.Document) map[string]string {
	labels := map[string]string{}
	for _, d := range docs {
		for _, c := range d.Cells {
			labels[c.Factors.Key()] = c.Label
		}
	}
	return labels
}

// headline are the metrics whose ratio is shown of every cell; others only where there is a difference.
var headline = []string{"goodput_bps", "packet_rate_pps"}

func printComparison(s streams, c *analysis.RunComparison, labels map[string]string) error {
	var b strings.Builder
	for _, r := range []struct {
		name string
		run  analysis.RunHead
	}{{"A", c.A}, {"B", c.B}} {
		fmt.Fprintf(&b, "%s  %s  plan %s, %s\n", r.name, r.run.ID, r.run.Plan,
			r.run.Started.Local().Format("2006-01-02 15:04"))
	}
	b.WriteString("\n" + strings.Join(c.Summary, "\n") + "\n")
	if err := comparisonTable(&b, c, labels); err != nil {
		return err
	}
	if len(c.Regressions) > 0 {
		b.WriteString("\n")
	}
	for _, r := range c.Regressions {
		fmt.Fprintf(&b, "worse in B: %s: %s\n", labels[r.Factors.Key()], r.Text)
	}
	if len(c.Changes) > 0 {
		b.WriteString("\nWhat else differs (* can explain a difference of results):\n")
	}
	for _, ch := range c.Changes {
		mark := " "
		if ch.Cause {
			mark = "*" // can explain a difference of results
		}
		fmt.Fprintf(&b, "%s %s %s: %s → %s\n", mark, ch.Kind, ch.Name, orNone(ch.A), orNone(ch.B))
	}
	for _, only := range []struct {
		name  string
		cells []record.Factors
	}{{"A", c.OnlyA}, {"B", c.OnlyB}} {
		for _, f := range only.cells {
			fmt.Fprintf(&b, "only in %s: %s\n", only.name, labels[f.Key()])
		}
	}
	return write(s.Out, b.String())
}

func comparisonTable(b *strings.Builder, c *analysis.RunComparison, labels map[string]string) error {
	var lines []string
	for _, x := range c.Comparisons {
		if !slices.Contains(headline, x.Metric) && !differs(x) {
			continue
		}
		metric := x.Metric
		if x.Difference {
			metric += ", B − A"
		}
		interval := fmt.Sprintf("%s to %s", unit.Significant(x.Low, 3), unit.Significant(x.High, 3))
		if x.Interval == analysis.IntervalSingle {
			interval = "-"
		}
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%s\t%d\t%s", labels[x.Factors.Key()], metric,
			unit.Significant(x.Ratio, 3), interval, x.N, x.Verdict))
	}
	if len(lines) == 0 {
		return nil
	}
	b.WriteString("\n")
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CELL\tMETRIC\tB ÷ A\tINTERVAL\tRUNS\tVERDICT")
	for _, l := range lines {
		fmt.Fprintln(w, l)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("lay out the comparison: %v", err)
	}
	return nil
}

// differs says that a comparison found a difference, whatever its cause.
func differs(c analysis.Comparison) bool {
	return c.Verdict == "different" || c.Verdict == "confounded"
}

// regressions are the cells that are worse in the second run.
func regressions(c *analysis.RunComparison, labels map[string]string) error {
	var errs []error
	for _, r := range c.Regressions {
		errs = append(errs, &exitError{codeThreshold, fmt.Errorf("regression: %s: %s",
			labels[r.Factors.Key()], r.Text)})
	}
	return errors.Join(errs...)
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}
