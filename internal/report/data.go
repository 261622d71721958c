package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// JSON returns the document as indented JSON, which is the output of show --json.
func JSON(d *analysis.Document) ([]byte, error) {
	return indented("document of run "+d.Run.ID, d)
}

// indented returns indented JSON. what names the value in errors.
func indented(what string, value any) ([]byte, error) {
	b, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode %s: %v", what, err)
	}
	return append(b, '\n'), nil
}

// CSVLong writes one line per trial and metric. It has the trial, its cell's id and factors, the metric with
// its unit, and the value in base units or the reason why it is missing. Further columns hold the kinds of
// reasons and caveats (including those of the cell and of the run), the programs that measured an imported
// run, and the cell's grade, number of trials, median and interval. A trial without numbers has a single
// line.
func CSVLong(d *analysis.Document) ([]byte, error) {
	v := newView(d)
	all := record.Factors{}
	for _, t := range v.Trials {
		maps.Copy(all, t.Factors)
	}

	factors := v.sorted(all)
	head := []string{"run", "trial", "cell", "block", "index", "kind", "grade", "reasons", "caveats",
		"imported_from"}
	lines := [][]string{slices.Concat(head, factors, []string{"metric", "unit", "value", "missing",
		"cell_grade", "cell_n", "cell_median", "cell_low", "cell_high", "cell_interval"})}
	for _, t := range d.Trials {
		lines = append(lines, v.trialLines(&t, factors)...)
	}

	return inCSV(lines)
}

// inCSV returns CSV with a UTF-8 byte order mark, which spreadsheets need to detect the encoding.
func inCSV(lines [][]string) ([]byte, error) {
	out := bytes.NewBufferString("\uFEFF")
	w := csv.NewWriter(out)
	w.UseCRLF = true // RFC 4180
	err := w.WriteAll(lines)
	return out.Bytes(), err
}

// asText puts an apostrophe before text that a spreadsheet would interpret as a formula.
func asText(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}

// trialLines returns a line for each metric of a trial, with the value or the reason why it is missing. A
// failed trial, and a trial without metrics, also has a line without a metric.
func (v *view) trialLines(t *analysis.TrialView, factors []string) [][]string {
	caveats := t.Caveats
	c := v.cell[t.Factors.Key()]
	if c != nil {
		caveats = slices.Concat(caveats, c.Caveats)
	}

	stem := []string{v.Run.ID, t.ID, t.Factors.ID(), strconv.Itoa(t.Block), strconv.Itoa(t.Index), t.Kind,
		t.Grade, strings.Join(distinct(t.Reasons, reasonKind), " "), v.kindsWith(caveats), v.importedFrom()}
	for _, name := range factors {
		stem = append(stem, t.Factors[name])
	}

	var lines [][]string
	add := func(metric, number, missing string) {
		unit := ""
		if metric != "" {
			unit = v.unitOf(metric)
		}

		line := each(append(slices.Clone(stem), metric, unit, "", missing), asText)
		line[len(line)-2] = number
		lines = append(lines, append(line, v.cellColumns(t, metric)...))
	}
	for _, name := range sortedKeys(t.Metrics) {
		add(name, decimal(t.Metrics[name]), "")
	}

	for _, name := range sortedKeys(t.Missing) {
		add(name, "", t.Missing[name])
	}

	f := t.Failure
	if f != nil {
		add("", "", "failed in "+f.Phase+": "+f.Error)
	} else if len(lines) == 0 {
		add("", "", "")
	}

	return lines
}

// cellColumns returns the grade, n, median and interval that a trial's cell has for a metric. They are empty
// if the trial belongs to no cell.
func (v *view) cellColumns(t *analysis.TrialView, metric string) []string {
	c := v.cell[t.Factors.Key()]
	if c == nil || !t.OfCell() {
		return make([]string, 6)
	}

	median, low, high, n := cellNumbers(c, metric)
	return []string{c.Grade, n, median, low, high, c.Metrics[metric].Interval}
}

// decimal formats a number with all digits and without exponent.
func decimal(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

func reasonKind(r evidence.Reason) string { return r.Kind }
func caveatKind(c record.Caveat) string   { return c.Kind }

// kindsWith lists the kinds of the given caveats and of the run's caveats.
func (v *view) kindsWith(all []record.Caveat) string {
	return strings.Join(distinct(slices.Concat(all, v.Caveats), caveatKind), " ")
}
