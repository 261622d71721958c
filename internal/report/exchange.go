package report

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// ForeignWords returns a sentence for each program that measured an imported run. The sentence states what
// the program's results lack. For other runs, ForeignWords returns nil.
func ForeignWords(d *analysis.Document) (all []string) {
	for _, c := range d.Caveats {
		if c.Kind == "foreign" {
			all = append(all, printable(c.Text))
		}
	}
	return all
}

// importedFrom names the programs that measured an imported run. It returns "" for other runs.
func (v *view) importedFrom() string { return strings.Join(v.Run.ImportedFrom, ", ") }

// measuredBy names the programs that measured a run.
func (v *view) measuredBy() string { return printable(cmp.Or(v.importedFrom(), "chokepoint")) }

// counted returns the trials of a cell that have metrics. If a row of the plan was repeated, only its last
// trial counts.
func (v *view) counted(c *analysis.Cell) []*analysis.TrialView {
	var out []*analysis.TrialView
	for _, t := range v.trials[c.Factors.Key()] {
		if !t.OfCell() || t.Failure != nil || t.Search != nil ||
			len(t.Metrics) == 0 {
			continue
		}

		n := len(out)
		if n > 0 && out[n-1].Row == t.Row {
			out = out[:n-1]
		}

		out = append(out, t)
	}
	return out
}

// Benchstat writes the run in Go's benchmark format (golang.org/design/14313-benchmark-format) for benchstat.
// Each trial is a line. The name in a line consists of the factors that differ between cells. The line
// contains every metric whose better direction is declared, in base units. A comment above the lines of a
// cell states the cell's validity, median, interval and number of trials.
func Benchstat(d *analysis.Document) []byte {
	v := newView(d)
	var b bytes.Buffer
	fmt.Fprintf(&b, "run: %s\nplan: %s\nlab: %s\nmachine: %s\n", d.Run.ID, printable(d.Run.Plan),
		printable(d.Run.Lab), printable(machine(d.Environment)))
	words := ForeignWords(d)
	if len(words) > 0 {
		fmt.Fprintf(&b, "measured-by: %s\nforeign: %s\n", v.measuredBy(), strings.Join(words, ". "))
	}

	declared := map[string]bool{}
	for _, m := range d.Metrics {
		if m.Better != "" {
			declared[m.Name] = true
			fmt.Fprintf(&b, "Unit %s better=%s\n", m.Name, m.Better)
		}
	}

	word := strings.NewReplacer(" ", "_", "/", "_", "\t", "_", "\n", "_")
	names := v.varying(v.all)
	for _, c := range v.all {
		name := "Benchmark" + upperFirst(word.Replace(printable(cmp.Or(d.Run.Plan, "run"))))
		for _, n := range names {
			if level, has := c.Factors[n]; has {
				name += "/" + word.Replace(n+"="+printable(level))
			}
		}

		fmt.Fprintf(&b, "# %s: %s\n", printable(c.Label), v.resultWords(c))
		for _, t := range v.counted(c) {
			line := ""
			for _, m := range sortedKeys(t.Metrics) {
				if declared[m] {
					line += " " + strconv.FormatFloat(t.Metrics[m], 'g', -1, 64) + " " + m
				}
			}

			if line != "" {
				b.WriteString(name + " 1" + line + "\n")
			}
		}
	}

	return b.Bytes()
}

// Ministat writes a table for ministat(1) with the option -C. Each cell has a column with the values of its
// trials in base units. The values are goodput or, if there is none, the rate of packets or of a cipher.
// Columns of cells with fewer trials come last, because ministat skips lines that lack a column. Comments
// list the cells with validity, median and interval, and the cells without the metric. If no cell has one of
// these metrics, Ministat returns an error.
func Ministat(d *analysis.Document) ([]byte, error) {
	v := newView(d)
	known := filter([]string{goodput, packetRate, metrics.CipherRate, metrics.CipherOps, metrics.Number},
		func(m string) bool { return with(v.all, m) })
	if len(known) == 0 {
		return nil, check.WithHint(fmt.Errorf("write run %s for ministat: it has no goodput, packet rate or "+
			"speed of a cipher", d.Run.ID), "csv holds what there is")
	}

	metric := known[0]
	cells := v.with(known[0])
	values := map[*analysis.Cell][]string{}
	for _, c := range cells {
		for _, t := range v.counted(c) {
			if x, ok := t.Metrics[metric]; ok {
				values[c] = append(values[c], decimal(x))
			}
		}
	}

	slices.SortStableFunc(cells, func(a, b *analysis.Cell) int { return len(values[b]) - len(values[a]) })
	var b bytes.Buffer
	fmt.Fprintf(&b, "# run %s, %s; ministat -C N FILE reads column N\n", d.Run.ID,
		joined(" in ", metrics.Label(metric), v.unitOf(metric)))
	for _, w := range ForeignWords(d) {
		fmt.Fprintf(&b, "# %s\n", w)
	}

	for i, c := range cells {
		fmt.Fprintf(&b, "# %d: %s: %s\n", i+1, printable(c.Label), v.valueWords(c, metric))
	}

	lack := each(v.cells(func(c *analysis.Cell) bool { return !has(c, metric) }), labelOf)
	if len(lack) > 0 {
		fmt.Fprintf(&b, "# no column, because without %s: %s\n", metrics.Label(metric),
			strings.Join(lack, "; "))
	}

	for i := range values[cells[0]] {
		var line []string
		for _, c := range cells {
			if i < len(values[c]) {
				line = append(line, values[c][i])
			}
		}

		b.WriteString(strings.Join(line, " ") + "\n")
	}

	return b.Bytes(), nil
}

func labelOf(c *analysis.Cell) string { return printable(c.Label) }

// reasonWords lists the kinds of a cell's reasons.
func reasonWords(c *analysis.Cell) string {
	return strings.Join(distinct(c.Reasons, reasonKind), ", ")
}

// gradeWords returns the grade of a cell with the kinds of its reasons, such as "suspect
// (background-load)".
func gradeWords(c *analysis.Cell) string { return printable(c.Grade + bracket(reasonWords(c))) }

// valueWords formats a cell's metric with its interval and number of trials, and the cell's validity.
func (v *view) valueWords(c *analysis.Cell, metric string) string {
	x, ok := c.Metrics[metric]
	if !ok {
		return gradeWords(c)
	}

	text := "median of " + strconv.Itoa(x.N) + " " + v.text(metric, x.Median)
	if hasInterval(x) {
		text += bracket(intervalName(x) + " " + v.spread(metric, x))
	}

	return text + ", " + gradeWords(c)
}

// resultWords calls valueWords for the metric that represents the cell.
func (v *view) resultWords(c *analysis.Cell) string {
	metric := rateMetric(c)
	if !has(c, metric) && has(c, idleP50) {
		metric = idleP50
	}

	if !has(c, metric) {
		return gradeWords(c)
	}

	return metrics.Label(metric) + " " + v.valueWords(c, metric)
}

// TrialWords describes, by trial id, the validity of each trial and the result of its cell. It is for formats
// with a file per trial.
func TrialWords(d *analysis.Document) map[string]string {
	v := newView(d)
	out := map[string]string{}
	for _, t := range d.Trials {
		words := "validity: " + t.Grade
		for _, r := range t.Reasons {
			words += ", " + r.Kind
		}

		c := v.cell[t.Factors.Key()]
		if c != nil {
			words += "; its cell, of " + unit.Count(c.Runs, "trial") + ": " + v.resultWords(c)
		}

		out[t.ID] = printable(words)
	}

	return out
}

// WGBench writes a row for each WireGuard cell with TCP, in the format of the table at
// github.com/cyyself/wg-bench: device and CPU, system and kernel, rate, note. If there is no such cell, it
// returns an error.
func WGBench(d *analysis.Document) ([]byte, error) {
	v := newView(d)
	var device, system []string
	for _, e := range d.Environment {
		if e.Node == "router" || e.Node == "host" && device == nil {
			device = []string{cmp.Or(e.Facts["product"], e.Facts["cpu_model"]), e.Facts["cpu_model"]}
			system = []string{cmp.Or(e.Facts["distribution"], "Linux"), e.Facts["kernel"]}
		}
	}

	column := func(parts []string) string { return escape(joined(" / ", once(nil, parts...)...)) }
	var b bytes.Buffer
	for _, c := range v.all {
		x, ok := c.Metrics[goodput]
		if !ok || !strings.HasPrefix(factor.Tunnel.Of(c.Factors), "wireguard") || packets(c) {
			continue
		}

		note := fmt.Sprintf("%s; %s, measured by %s", c.Label, v.valueWords(c, goodput), v.measuredBy())
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", column(device), column(system),
			wgRate(x.Median), escape(note))
	}

	if b.Len() == 0 {
		return nil, check.WithHint(fmt.Errorf("write run %s for wg-bench: no cell has goodput through "+
			"WireGuard", d.Run.ID), "other formats hold what there is; chokepoint report --help lists them")
	}

	return b.Bytes(), nil
}

// wgRate formats a rate as iperf3 does.
func wgRate(bps float64) string {
	prefix := ""
	for _, p := range []string{"K", "M", "G"} {
		if bps >= 1000 {
			bps /= 1000
			prefix = p
		}
	}
	return strconv.FormatFloat(bps, 'g', 3, 64) + " " + prefix + "bits/sec"
}
