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

// OpenMetrics renders the run as OpenMetrics 1.0 text for a Prometheus gateway.
func OpenMetrics(d *analysis.Document) []byte { return Exposition(Families(d)) }

// Families returns the run as metrics of OpenMetrics 1.0. Each metric of a cell has samples for the median
// and the bounds of its interval (label "stat"). The number of trials is in trials, the validity of the cell
// in cell_valid, and the outcome of requirements in requirement_met.
//
// Names end with their unit: seconds, bits or packets per second, or ratio. All metrics are gauges, because a
// median is not a counter. Samples are labelled with the id and factors of the cell. These are the same in
// every run, so the samples of several runs form one series. Labels that differ between runs belong to
// chokepoint_cell_info: run, label and grade of the cell (including "skipped"), its reasons, and the programs
// that measured an imported run. The help text states what an imported run lacks. The labels of each sample
// start with extra.
func Families(d *analysis.Document, extra ...[2]string) (all []Family) {
	v := newView(d)
	sample := func(name string, labels [][2]string, value float64) string {
		return Sample(name, slices.Concat(extra, labels), value)
	}
	add := func(name, unit, help string, samples []string) {
		if len(samples) > 0 {
			all = append(all, Family{Name: name, Unit: unit, Help: help, Samples: strings.Join(samples, "")})
		}
	}
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
			counts = append(counts, sample("chokepoint_trials", append(labels, [2]string{"metric",
				name}), float64(value.N)))
			stat := func(stat string, v float64, more ...[2]string) {
				all := slices.Concat(labels, [][2]string{{"stat", stat}}, more)
				lines = append(lines, sample(name, all, v*scale))
			}
			stat("median", value.Median)
			if hasInterval(value) {
				kind := [2]string{"interval", value.Interval}
				stat("low", value.Low, kind)
				stat("high", value.High, kind)
			}
		}

		add(name, unit, cmp.Or(m.Label, m.Name)+around(" in ", strings.ReplaceAll(unit, "_", " "), "")+
			": median and bounds of the interval over the trials of a cell"+help, lines)
	}

	add("chokepoint_trials", "", "trials that a metric of a cell is of"+help, counts)
	var valid, infos []string
	cells := slices.Concat(v.all, v.skipped())
	labels := map[string][][2]string{}
	for _, c := range cells {
		labels[c.Factors.Key()] = v.openLabels(c)
		valid = append(valid, sample("chokepoint_cell_valid", v.openLabels(c),
			truth(c.Grade == evidence.GradeValid)))
		info := [][2]string{{"id", c.ID}, {"run", v.Run.ID}, {"cell", c.Label}, {"validity", c.Grade},
			{"reasons", reasonWords(c)}}
		if v.importedFrom() != "" {
			info = append(info, [2]string{"measured_by", v.measuredBy()})
		}

		infos = append(infos, sample("chokepoint_cell_info", info, 1))
	}

	add("chokepoint_cell_valid", "", "1: the cell is valid, 0: it is suspect, failed, not reached or "+
		"skipped; chokepoint_cell_info has the reasons"+help, valid)
	add("chokepoint_cell_info", "", "run, label, validity and reasons of a cell by its id"+help, infos)
	var met []string
	for _, t := range d.Thresholds {
		if !d.Unchecked(t) {
			of := append([][2]string{{"requirement", t.Requirement}}, labels[t.Factors.Key()]...)
			met = once(met, sample("chokepoint_requirement_met", of, truth(t.Met)))
		}
	}

	add("chokepoint_requirement_met", "", "1: the cell meets the requirement, 0: it does not",
		met)
	return all
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

// openLabels returns the labels of a cell that are the same in every run.
func (v *view) openLabels(c *analysis.Cell) [][2]string {
	labels := [][2]string{{"id", c.ID}}
	for _, name := range v.sorted(c.Factors) {
		labels = append(labels, [2]string{labelName(name), c.Factors[name]})
	}

	return slices.Clip(labels)
}

// Family is a metric of OpenMetrics 1.0 with its samples.
type Family struct {
	Name    string
	Kind    string // "" means gauge
	Unit    string // unit with which the name ends, or ""
	Help    string
	Samples string // lines that Sample returned
}

var openQuote = strings.NewReplacer("\\", "\\\\", "\"", "\\\"", "\n", "\\n")

// Exposition renders families as a text. Families with the same name become one family with the description
// of the first of them.
func Exposition(families []Family) []byte {
	var b bytes.Buffer
	seen := map[string]bool{}
	for _, f := range families {
		if seen[f.Name] {
			continue
		}

		seen[f.Name] = true
		fmt.Fprintf(&b, "# TYPE %s %s\n", f.Name, cmp.Or(f.Kind, "gauge"))
		if f.Unit != "" {
			fmt.Fprintf(&b, "# UNIT %s %s\n", f.Name, f.Unit)
		}

		fmt.Fprintf(&b, "# HELP %s %s\n", f.Name, openQuote.Replace(printable(f.Help)))
		for _, same := range families {
			if same.Name == f.Name {
				b.WriteString(same.Samples)
			}
		}
	}

	b.WriteString("# EOF\n")
	return b.Bytes()
}

// Sample returns a sample as a line of OpenMetrics.
func Sample(name string, labels [][2]string, value float64) string {
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

// GlanceFamilies returns the current state of a node as metrics. Values that the node does not report have no
// samples.
func GlanceFamilies(g *analysis.Glance) (all []Family) {
	add := func(name, unit, help string, value *float64, labels ...[2]string) {
		if value == nil {
			return
		}

		name = "chokepoint_" + name + "_" + unit
		line := Sample(name, append([][2]string{{"node", g.Node}}, labels...), *value)
		all = append(all, Family{Name: name, Unit: unit, Help: help, Samples: line})
	}
	for _, c := range g.Cores {
		core := [2]string{"core", c.Name}
		add("core_busy", "ratio", "share of time in which a core was busy", &c.Busy, core)
		add("core_softirq", "ratio", "share of time of a core in softirqs", &c.Softirq, core)
	}

	for _, d := range g.Devices {
		port := [2]string{"port", d.Name}
		in, out := [2]string{"direction", "in"}, [2]string{"direction", "out"}
		add("port", "bits_per_second", "traffic of a network device", &d.RxBps, port, in)
		add("port", "bits_per_second", "", &d.TxBps, port, out)
		add("port", "packets_per_second", "packets of a network device", &d.RxPps, port, in)
		add("port", "packets_per_second", "", &d.TxPps, port, out)
		add("port_drops", "per_second", "packets dropped by a network device or its queues", &d.DropPs, port)
		add("port_queue", "bytes", "average backlog of the longest queue of a network device", &d.QueueBytes,
			port)
	}

	add("clock", "hertz", "clock of the fastest cores", g.ClockHz)
	add("temperature", "celsius", "reading of the hottest sensor", g.TemperatureC)
	add("power", "watts", "power that the node draws", g.PowerW)
	add("observing_cpu", "ratio", "CPU time of sampling, in cores", g.ObservingRatio)
	if c := g.Candidate; c != nil {
		add("limit_confidence", "ratio", "confidence that this class limits the traffic, from the samples "+
			"of the node alone", &c.Confidence, [2]string{"class", c.Class}, [2]string{"text", c.Text})
	}

	return all
}
