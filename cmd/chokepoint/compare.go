package main

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/report"
	"github.com/chokepoint-lab/chokepoint/internal/userfile"
)

func newCompareCommand(p *program) *cobra.Command {
	var failOnRegression, strict bool
	var junit string
	cmd := &cobra.Command{
		Use:   "compare [RUN [RUN]]",
		Short: "Compare two stored runs, made at different times",
		Long: `Compare the second stored run with the first: rates, loss, retransmits and latency of
each cell that both measured, and everything else that differs between the runs. A
difference with more than one candidate cause is called confounded. Cells with fewer
than six runs on either side get no verdict.

Without RUN, it compares the latest run with the previous run of the same plan. A single
RUN is compared with the latest other run of its plan. In both cases the newer run is
the second. RUN may also be a file that show --json wrote on any machine; if it is the
only RUN, it is the first run.`,
		Args:              atMost(2),
		ValidArgsFunction: completeRuns(p, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			pair, err := p.pairOf(cmd.Context(), args)
			if err != nil {
				return err
			}

			c, docs, err := p.Compare(cmd.Context(), pair[0], pair[1])
			if err != nil {
				return err
			}

			labels := report.CellLabels(docs[:]...)
			if strict && !failOnRegression && junit == "" {
				return app.Usage("add --fail-on-regression",
					"--strict changes what --fail-on-regression and --junit count")
			}

			if junit != "" {
				content, err := report.ComparisonJUnit(c, labels, strict)
				if err == nil {
					err = userfile.Put(userfile.Create, junit, content)
				}

				if err != nil {
					return err
				}
			}

			err = p.document(c, comparisonText(c, labels, p.width(), docs[:]...))
			if err != nil || !failOnRegression {
				return err
			}

			return p.regressions(c, labels, strict)
		},
	}
	addJSON(cmd, "print one JSON document")
	cmd.Flags().StringVar(&junit, "junit", "", "write a test for each cell to this `FILE` (JUnit XML): a "+
		"worse cell fails; a suspect one, or one without a verdict, is skipped")
	cmd.Flags().BoolVar(&failOnRegression, "fail-on-regression", false,
		"exit with 4 if a cell is worse in the second run, confounded or not, or has no number there; "+
			"a cell that is suspect in either run does not count, but a note names it; "+
			"exit with 1 if nothing was compared")
	cmd.Flags().BoolVar(&strict, "strict", false,
		"with --fail-on-regression or --junit: suspect cells count, too")
	return cmd
}

// pairOf returns the runs to compare. If it has to choose a run, it prints a note that names both runs.
func (p *program) pairOf(ctx context.Context, args []string) ([2]string, error) {
	if len(args) == 2 {
		return [2]string(args), nil
	}

	older, newer, err := p.Dirs.Pair(ctx, append(args, "")[0])
	if err != nil {
		return [2]string{}, err
	}

	if app.IsDocumentFile(older) {
		p.note("comparing %s, A, with run %s, B", older, newer)
	} else {
		p.note("comparing run %s, A, with the later run %s, B", older, newer)
	}

	return [2]string{older, newer}, nil
}

// comparisonText formats a comparison for a width (0 means unlimited). It also states what imported runs
// lack.
func comparisonText(c *analysis.RunComparison, labels map[string]string, width int,
	docs ...*analysis.Document) string {
	var b builder
	for i, run := range []analysis.RunHead{c.A, c.B} {
		by := "plan " + run.Plan
		if len(run.ImportedFrom) > 0 {
			by = "imported, measured by " + list(run.ImportedFrom)
		}

		for _, words := range []string{run.Device, run.Name} {
			if words != "" {
				by = words + ", " + by
			}
		}

		b.printf("%c  %s  %s, %s\n", 'A'+i, run.ID, by, run.Started.Local().Format("2006-01-02 15:04"))
	}

	for i, d := range docs {
		for _, words := range report.ForeignWords(d) {
			b.printf("%c  %s\n", 'A'+i, words)
		}
	}

	b.WriteString("\n" + strings.Join(c.Summary, "\n") + "\n")
	rows := report.ComparisonRows(c, labels)
	if len(rows) > 1 {
		b.WriteString("\n" + comparisonTable(rows, width) + report.RatioWords(c) + "\n")
	}

	b.WriteString(paragraph(each(c.Regressions, func(r analysis.Regression) string {
		text := "worse in B: " + labels[r.Factors.Key()] + ": " + r.Text
		if r.Suspect {
			text += " (suspect)"
		}
		return text
	})))
	if len(c.Changes) > 0 {
		b.WriteString("\nWhat else differs (* can explain a difference of results):\n")
	}

	for _, ch := range c.Changes {
		mark := " "
		if ch.Cause {
			mark = "*" // the change may explain differences between results
		}

		b.printf("%s %s %s: %s → %s\n", mark, ch.Kind, ch.Name, cmp.Or(ch.A, "none"),
			cmp.Or(ch.B, "none"))
	}

	for i, cells := range [][]record.Factors{c.OnlyA, c.OnlyB} {
		for _, f := range cells {
			why := ""
			if other := 1 - i; other < len(docs) {
				why = report.OtherSkipped(docs[other], f)
			}

			b.printf("only in %c: %s%s\n", 'A'+i, labels[f.Key()], why)
		}
	}

	return b.String()
}

// comparisonTable formats each row as one line. If the lines are too long for the width, it leaves out the
// words that all cells share. If that does not suffice, it uses two lines per row, or paragraphs.
func comparisonTable(rows grid, width int) string {
	text := table(rows, 0)
	if width == 0 || widest(text) <= width {
		return text
	}

	labels := distinct(each(rows[1:], func(r []string) string { return r[0] }))
	short, shared := report.Apart(labels)
	said := ""
	if shared != "" {
		said = "All cells: " + shared + "."
	}

	lines := report.Table{Caption: said, Columns: []report.Column{{Head: "CELL", Sub: "METRIC"},
		{Head: "A", Sub: "B"}, {Head: "B ÷ A", Sub: "INTERVAL"}, {Head: "RUNS"},
		{Head: "VERDICT", Sub: "VALIDITY"}}}
	for i, r := range rows[1:] {
		r = slices.Clone(r)
		r[0] = short[slices.Index(labels, r[0])]
		rows[i+1] = r
		verdict, why, _ := strings.Cut(r[8], ": ")
		row := report.TableRow{Cells: []report.TableCell{{Text: r[0], Sub: r[1]},
			{Head: "A (B)", Text: r[2], Sub: r[3]}, {Text: r[4], Sub: r[5]}, {Text: r[6]},
			{Text: verdict, Sub: r[7]}}}
		if why != "" {
			row.Notes = []report.Item{{Text: why}}
		}

		lines.Rows = append(lines.Rows, row)
	}

	if text = table(rows, 0); widest(text) <= width {
		return text + hang("", said, width)
	}

	return strings.TrimRight(lines.Lines(width), "\n") + "\n"
}
