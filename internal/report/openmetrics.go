package report

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// OpenMetrics renders the run as OpenMetrics 1.0 text for a Prometheus gateway. For each metric and cell,
// it has the median and the bounds of its interval (label "stat"). The number of trials is in trials, the
// validity of the cell in cell_valid, and the outcome of requirements in requirement_met.
//
// Names end with their unit: seconds, bits or packets per second, or ratio. All metrics are gauges, because
// a median is not a counter. Samples are labelled with the id and factors of the cell, which are the same
// in every run, so that the samples of several runs form one series. Labels that differ between runs are
// those of cell_info: run, label and grade of the cell (including "skipped"), its reasons, and the programs
// that measured an imported run. The help text names what an imported run lacks.
func OpenMetrics(d *analysis.Document) []byte {
	v := newView(d)
	x := &exposition{}
	help := strings.Join(append([]string{""}, ForeignWords(d)...), "; ")
	var counts []string
	for _, m := range d.Metrics {
		name, unit, scale := openName(m)
		var lines []string
		for _, c := range v.all {
			value, ok := c.Metrics[m.Name]
			if !ok {
				continue
			}

			labels := v.openLabels(c)
			counts = append(counts, sampleText("chokepoint_trials", append(labels, [2]string{"metric",
				name}), float64(value.N)))
			add := func(stat string, v float64, more ...[2]string) {
				all := slices.Concat(labels, [][2]string{{"stat", stat}}, more)
				lines = append(lines, sampleText(name, all, v*scale))
			}
			add("median", value.Median)
			if hasInterval(value) {
				kind := [2]string{"interval", value.Interval}
				add("low", value.Low, kind)
				add("high", value.High, kind)
			}
		}

		x.family(name, unit, cmp.Or(m.Label, m.Name)+around(" in ", openWords(unit), "")+
			": median and bounds of the interval over the trials of a cell"+help, lines)
	}

	x.family("chokepoint_trials", "", "trials that a metric of a cell is of"+help, counts)
	var valid, infos []string
	cells := slices.Concat(v.all, v.skipped())
	labels := map[string][][2]string{}
	for _, c := range cells {
		labels[c.Factors.Key()] = v.openLabels(c)
		valid = append(valid, sampleText("chokepoint_cell_valid", v.openLabels(c),
			truth(c.Grade == evidence.GradeValid)))
		info := [][2]string{{"id", c.ID}, {"run", v.Run.ID}, {"cell", c.Label}, {"validity", c.Grade},
			{"reasons", reasonWords(c)}}
		if len(v.Run.ImportedFrom) > 0 {
			info = append(info, [2]string{"measured_by", v.measuredBy()})
		}

		infos = append(infos, sampleText("chokepoint_cell_info", info, 1))
	}

	x.family("chokepoint_cell_valid", "", "1: the cell is valid, 0: it is suspect, failed, not reached or "+
		"skipped; chokepoint_cell_info has the reasons"+help, valid)
	x.family("chokepoint_cell_info", "", "run, label, validity and reasons of a cell by its id"+help, infos)
	var met []string
	for _, t := range d.Thresholds {
		if !d.Unchecked(t) {
			all := append([][2]string{{"requirement", t.Requirement}}, labels[t.Factors.Key()]...)
			met = once(met, sampleText("chokepoint_requirement_met", all, truth(t.Met)))
		}
	}

	x.family("chokepoint_requirement_met", "", "1: the cell meets the requirement, 0: it does not",
		met)
	x.b.WriteString("# EOF\n")
	return x.b.Bytes()
}

// truth returns 1 for true and 0 for false.
func truth(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// openName returns a metric's OpenMetrics name and unit, and the factor that converts its values. Counts
// have no unit.
func openName(m record.Metric) (name, unit string, scale float64) {
	name = "chokepoint_" + labelName(m.Name)
	for _, u := range [...]struct {
		suffix, unit string
		scale        float64
	}{{"_ns", "seconds", 1e-9}, {"_bps", "bits_per_second", 1}, {"_pps", "packets_per_second", 1},
		{"_per_s", "per_second", 1}, {"_s", "seconds", 1}, {"_w", "watts", 1}, {"_c", "celsius", 1},
		{"_hz", "hertz", 1}, {"_ratio", "ratio", 1}, {"_bytes", "bytes", 1},
		{"_rpm", "round_trips_per_minute", 1}} {
		stem, ok := strings.CutSuffix(name, u.suffix)
		if ok {
			return stem + "_" + u.unit, u.unit, u.scale
		}
	}

	return name, "", 1
}

// openWords formats a unit for the help text.
func openWords(unit string) string { return strings.ReplaceAll(unit, "_", " ") }

// openLabels returns the labels of a cell that are the same in every run.
func (v *view) openLabels(c *analysis.Cell) [][2]string {
	labels := [][2]string{{"id", c.ID}}
	for _, name := range v.sorted(c.Factors) {
		labels = append(labels, [2]string{labelName(name), c.Factors[name]})
	}

	return slices.Clip(labels)
}

// exposition builds a text in OpenMetrics format.
type exposition struct{ b bytes.Buffer }

var openQuote = strings.NewReplacer("\\", "\\\\", "\"", "\\\"", "\n", "\\n")

// family writes the samples of a gauge, if there are any. The unit, if any, is the end of its name.
func (x *exposition) family(name, unit, help string, samples []string) {
	if len(samples) == 0 {
		return
	}

	fmt.Fprintf(&x.b, "# TYPE %s gauge\n", name)
	if unit != "" {
		fmt.Fprintf(&x.b, "# UNIT %s %s\n", name, unit)
	}

	fmt.Fprintf(&x.b, "# HELP %s %s\n%s", name, openQuote.Replace(printable(help)), strings.Join(samples, ""))
}

func sampleText(name string, labels [][2]string, value float64) string {
	var pairs []string
	for _, l := range labels {
		pairs = append(pairs, l[0]+`="`+openQuote.Replace(printable(l[1]))+`"`)
	}
	return fmt.Sprintf("%s{%s} %s\n", name, strings.Join(pairs, ","), strconv.FormatFloat(value, 'g', -1, 64))
}

var notInLabels = check.Pattern(`[^a-zA-Z0-9_]`)

// labelName replaces the characters that OpenMetrics does not allow in names. The prefix f_ distinguishes
// factors from other labels.
func labelName(name string) string {
	name = notInLabels().ReplaceAllString(name, "_")
	if slices.Contains([]string{"run", "id", "cell", "stat", "measured_by", "validity", "interval", "metric",
		"reasons", "requirement", "device", "plan"}, name) {
		return "f_" + name
	}
	return name
}
