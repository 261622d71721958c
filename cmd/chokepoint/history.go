package main

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/history"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/report"
	"github.com/chokepoint-lab/chokepoint/internal/userfile"
)

// historyFormats lists the formats of a history, the default first.
var historyFormats = strings.Fields("text json csv html svg")

func newHistoryCommand(p *program) *cobra.Command {
	var o app.HistoryOptions
	var since, format, file, junit string
	var failOnRegression, strict bool
	cmd := &cobra.Command{
		Use:   "history",
		Short: "Show how the results of a plan changed from run to run",
		Long: `Show the cells of a plan on a device over all stored runs, by default those of the
newest run: a line for each cell, or with --cell a table of its runs. A change point,
where the level of the results changed, is proposed by the runs after it and confirmed
by later runs with the same firmware and kernel. The output also lists what else differs
between the runs before and after it. Finding a change point takes about eight runs. A
run without a number stays in the table.

--canary names a firmware that is measured again and again and never replaced. If it
changes at the same time, the testbed changed, not the firmware.`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Since, err = sinceOf(since, time.Now()); err != nil {
				return err
			}

			extension := strings.TrimPrefix(filepath.Ext(file), ".")
			if !cmd.Flags().Changed("format") && slices.Contains(historyFormats, extension) {
				format = extension
			}

			err = cmp.Or(known("--format %q is not known", format, "formats", historyFormats...),
				known("--metric %q is not known", o.Metric, "metrics", comparison.ComparedMetrics...))
			if err != nil {
				return err
			}

			if strict && !failOnRegression && junit == "" {
				return app.Usage("add --fail-on-regression",
					"--strict changes what --fail-on-regression and --junit count")
			}

			h, err := p.History(cmd.Context(), o)
			if err != nil {
				return err
			}

			if junit != "" {
				content, err := report.HistoryJUnit(h, strict)
				if err == nil {
					err = userfile.Put(userfile.Create, junit, content)
				}

				if err != nil {
					return err
				}
			}

			if err := p.writeHistory(h, format, file); err != nil || !failOnRegression {
				return err
			}

			return regressionsOf(h, strict)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Cell, "cell", "",
		"only cells whose label has these `WORDS`, in any order, or the cell with this id")
	f.StringVar(&o.Plan, "plan", "", "only runs of this `PLAN`")
	f.StringVar(&o.Device, "device", "",
		"only runs of the device `NAME`, given without its firmware, or of the lab NAME")
	f.StringVar(&o.Firmware, "firmware", "", "only runs with the firmware `TEXT`")
	f.StringVar(&o.Metric, "metric", "", "this `METRIC` instead of the rate, such as rtt_loaded_p50_ns")
	f.StringVar(&o.Canary, "canary", "", "the firmware `TEXT` that never changes")
	f.StringVar(&since, "since", "",
		"only runs since this `DATE`, such as 2026-11-30, or of the last days, such as 30d")
	f.StringVar(&format, "format", historyFormats[0], "`FORMAT`: "+list(historyFormats)+
		"; default: from the name of the file")
	f.StringVar(&junit, "junit", "",
		"write a test for each cell to this `FILE` (JUnit XML): a confirmed change for the worse fails")
	f.BoolVar(&failOnRegression, "fail-on-regression", false, "exit with 4 if the last change of a cell is "+
		"for the worse and confirmed, and no canary changed with it")
	f.BoolVar(&strict, "strict", false,
		"with --fail-on-regression or --junit: a change that suspect runs show counts, too")
	addOutput(cmd, &file, "write to this `FILE`; - is standard output")
	completeOne(cmd, "format", historyFormats)
	completeOne(cmd, "metric", comparison.ComparedMetrics)
	completeHistory(p, cmd, "plan", func(h store.ResultHead) string { return h.Plan })
	completeHistory(p, cmd, "device", func(h store.ResultHead) string { return h.Device })
	return cmd
}

// completeHistory completes a flag. It calls of for each stored run to get the values.
func completeHistory(p *program, cmd *cobra.Command, flag string, of func(store.ResultHead) string) {
	cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, _ string) ([]string,
		cobra.ShellCompDirective) {
		st, err := p.Dirs.OpenStore(cmd.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		defer st.Close()
		heads, err := st.ResultHeads(cmd.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}

		names := distinct(each(heads, func(h store.ResultHead) string { return check.Plain(of(h)) }))
		return names, cobra.ShellCompDirectiveNoFileComp
	})
}

// sinceOf parses a date, or a number of days before now.
func sinceOf(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}

	days, isDays := strings.CutSuffix(text, "d")
	n, err := strconv.Atoi(days)
	if isDays && err == nil && n > 0 {
		return now.AddDate(0, 0, -n), nil
	}

	at, err := time.ParseInLocation(time.DateOnly, text, time.Local)
	if err != nil {
		return at, app.Usage("write it like --since 2026-11-30 or --since 30d",
			"--since %q is neither a date nor a number of days", text)
	}

	return at, nil
}

// writeHistory writes a history in a format to a file or to standard output.
func (p *program) writeHistory(h *history.History, format, file string) error {
	if format == "html" && file == "" {
		return app.Usage("add --output FILE; - is standard output", "html is not for a terminal")
	}

	if format == "svg" && len(h.Cells) > 1 {
		return app.Usage("name one by --cell: "+strings.Join(each(h.Cells, func(c history.Cell) string {
			return c.Label
		}), "; "), "svg shows one cell, not %d", len(h.Cells))
	}

	layouts := map[string]func(*history.History) ([]byte, error){
		"text": func(h *history.History) ([]byte, error) { return []byte(check.Plain(historyText(h))), nil },
		"json": report.HistoryJSON,
		"csv":  report.HistoryCSV,
		"html": func(h *history.History) ([]byte, error) { return report.HistoryHTML(h) },
		"svg":  report.HistorySVG,
	}
	content, err := layouts[format](h)
	if err != nil {
		return err
	}

	return p.put(userfile.Create, cmp.Or(file, standard), content)
}

// regressionsOf returns an error that joins the regressions of all cells.
func regressionsOf(h *history.History, strict bool) error {
	var errs []error
	for i := range h.Cells {
		c := &h.Cells[i]
		x, bad := c.Regressed(strict)
		if bad {
			errs = append(errs, regression(c.Label, report.ChangeWords(c, x)))
		}
	}
	return errors.Join(errs...)
}

// historyText formats a single cell with its runs, or several cells with one line each.
func historyText(h *history.History) string {
	var b builder
	b.printf("plan %s on %s, %d runs\n\n", h.Plan, h.Device, h.Runs)
	if len(h.Cells) == 1 {
		b.addCell(&h.Cells[0])
		return b.String()
	}

	rows := heading("CELL | METRIC | HISTORY | LATEST | SINCE FIRST | RUNS | LAST CHANGE")
	for i := range h.Cells {
		c := &h.Cells[i]
		var values []float64
		for _, p := range c.Points {
			if p.Value != nil {
				values = append(values, p.Value.Median)
			}
		}

		last := values[len(values)-1]
		since := "-"
		if values[0] > 0 && len(values) > 1 {
			since = ratioText(last / values[0])
		}

		change := "-"
		if n := len(c.Changes); n > 0 {
			x := c.Changes[n-1]
			change = strings.TrimSpace(x.To.Local().Format(time.DateOnly) + " " + x.Better + ", " + x.Status)
		}

		name := c.Metric.Name
		rows.add(c.Label, metrics.Label(name), spark(c.Points), metrics.Say(name, last), since,
			len(values), change)
	}

	b.WriteString(table(rows, 0))
	return b.String()
}

// addCell appends the runs and changes of a cell.
func (b *builder) addCell(c *history.Cell) {
	b.printf("%s: %s  %s  id %s\n\n", c.Label, metrics.Label(c.Metric.Name), spark(c.Points), c.ID)
	rows := heading("DATE | RUN | FIRMWARE | KERNEL | N | MEDIAN | INTERVAL | VALIDITY | CHANGE")
	for _, p := range c.Points {
		if p.GapDays > 0 {
			rows.add("…", fmt.Sprintf("%v days without a run", p.GapDays), "", "", "", "", "", "", "")
		}

		n, median, interval := "-", "-", "-"
		if v := p.Value; v != nil {
			n = strconv.Itoa(v.N)
			median = metrics.Say(c.Metric.Name, v.Median)
			if v.N > 1 {
				interval = metrics.Say(c.Metric.Name, v.Low) + " to " + metrics.Say(c.Metric.Name, v.High)
			}
		}

		change := ""
		if x := c.ChangeAt(p); x != nil {
			change = strings.TrimSpace("← " + x.Better + ", " + x.Status)
		}

		grade := p.Grade
		if p.Value == nil && p.Grade == evidence.GradeFailed && p.Why != "" {
			grade += ": " + p.Why
		}

		rows.add(p.Started.Local().Format("2006-01-02 15:04"), cmp.Or(p.Name, p.Run), cmp.Or(p.Firmware, "-"),
			cmp.Or(p.Kernel, "-"), n, median, interval, grade, change)
	}

	b.WriteString(trimmed(table(rows, 0)))
	for _, x := range c.Changes {
		b.printf("\n%s\n", report.ChangeWords(c, x))
		for _, cause := range x.Causes {
			b.printf("  differs: %s\n", cause)
		}
	}
}

// sparkPoints is the maximum number of runs in a sparkline.
const sparkPoints = 24

// spark draws the newest medians on a scale from the lowest to the highest median. The scale covers at least
// a tenth of the highest median. A dot stands for a run without a number.
func spark(points []history.Point) string {
	points = points[max(0, len(points)-sparkPoints):]
	low, high := 0.0, 0.0
	for _, p := range points {
		if p.Value != nil {
			if low == 0 || p.Value.Median < low {
				low = p.Value.Median
			}

			high = max(high, p.Value.Median)
		}
	}

	levels := []rune("▁▂▃▄▅▆▇█")
	low = min(low, high*0.9)
	var b strings.Builder
	for _, p := range points {
		switch {
		case p.Value == nil:
			b.WriteRune('·')
		case high > low:
			at := (p.Value.Median - low) / (high - low) * float64(len(levels))
			b.WriteRune(levels[min(int(at), len(levels)-1)])
		default:
			b.WriteRune(levels[0])
		}
	}

	return b.String()
}
