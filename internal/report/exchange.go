package report

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// ForeignWords say of a run that was imported what measured it and what its results lack, a sentence for each
// program; of a run of our own there are none.
func ForeignWords(d *analysis.Document) (all []string) {
	for _, c := range d.Caveats {
		if c.Kind == "foreign" {
			all = append(all, printable(c.Text))
		}
	}
	return all
}

// measuredBy names the programs that measured a run.
func (v *view) measuredBy() string {
	return printable(cmp.Or(strings.Join(v.Run.ImportedFrom, ", "), "chokepoint"))
}

// counted are the trials of a cell that have numbers, the last one of each row of the plan.
func (v *view) counted(c *analysis.Cell) []*analysis.TrialView {
	var out []*analysis.TrialView
	for _, t := range v.trials[c.Factors.Key()] {
		if of := (record.Row{Kind: t.Kind}); !of.OfCell() || t.Failure != nil || t.Search != nil ||
			len(t.Metrics) == 0 {
			continue
		}
		if n := len(out); n > 0 && out[n-1].Row == t.Row {
			out = out[:n-1]
		}
		out = append(out, t)
	}
	return out
}

// Benchstat is the run in Go's benchmark format (golang.org/design/14313-benchmark-format), which benchstat
// compares: a line for each trial, whose name has the factors that differ between cells, with every metric
// that says what is better, in base units and under its own name.
func Benchstat(d *analysis.Document) []byte {
	v := newView(d)
	var b bytes.Buffer
	fmt.Fprintf(&b, "run: %s\nplan: %s\nlab: %s\nmachine: %s\n", d.Run.ID, printable(d.Run.Plan),
		printable(d.Run.Lab), printable(machine(d.Environment)))
	if words := ForeignWords(d); len(words) > 0 {
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
		for _, t := range v.counted(c) {
			line := ""
			for _, m := range slices.Sorted(maps.Keys(t.Metrics)) {
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

// ministatMetrics are those that ministat gets, the first one that a run has.
var ministatMetrics = [...]string{goodput, packetRate, metrics.CipherRate, metrics.CipherOps, metrics.Number}

// Ministat has one column of a metric, in its base unit, for each cell, and a line for each of its trials, as
// ministat(1) reads them by -C: of goodput, or where there is none the rate of packets or of a cipher. It
// passes over lines that have no such column, so that cells with fewer trials than others come last. A
// comment names the cells without the metric. A run that has none of these is refused.
func Ministat(d *analysis.Document) ([]byte, error) {
	v := newView(d)
	type column struct {
		label  string
		values []string
	}
	var columns []column
	var without []string // the labels of cells that the metric is not of
	metric := ""
	for _, m := range ministatMetrics {
		if len(columns) > 0 {
			break
		}
		metric, without = m, nil
		for _, c := range v.all {
			var values []string
			for _, t := range v.counted(c) {
				if x, ok := t.Metrics[metric]; ok {
					values = append(values, strconv.FormatFloat(x, 'f', -1, 64))
				}
			}
			if len(values) > 0 {
				columns = append(columns, column{c.Label, values})
			} else {
				without = append(without, printable(c.Label))
			}
		}
	}
	if len(columns) == 0 {
		return nil, check.WithHint(fmt.Errorf("write run %s for ministat: it has no goodput, packet rate or "+
			"speed of a cipher", d.Run.ID), "csv and parquet hold what there is")
	}
	slices.SortStableFunc(columns, func(a, b column) int { return len(b.values) - len(a.values) })
	var b bytes.Buffer
	name := metrics.Label(metric)
	if unit := v.unitOf(metric); unit != "" {
		name += " in " + unit
	}
	fmt.Fprintf(&b, "# run %s, %s; ministat -C N FILE reads column N\n", d.Run.ID, name)
	for _, w := range ForeignWords(d) {
		fmt.Fprintf(&b, "# %s\n", w)
	}
	for i, c := range columns {
		fmt.Fprintf(&b, "# %d: %s\n", i+1, printable(c.label))
	}
	if len(without) > 0 {
		fmt.Fprintf(&b, "# no column, because without %s: %s\n", metrics.Label(metric),
			strings.Join(without, "; "))
	}
	for i := range columns[0].values {
		var line []string
		for _, c := range columns {
			if i < len(c.values) {
				line = append(line, c.values[i])
			}
		}
		b.WriteString(strings.Join(line, " ") + "\n")
	}
	return b.Bytes(), nil
}

// OpenMetrics is the run as OpenMetrics text 1.0 for a gateway of Prometheus: of each metric the median of
// each cell with the bounds of its interval, by the label "stat", and the number of trials. Values are in
// base units. What measured an imported run is the label "measured_by", what it lacks stands in the help.
func OpenMetrics(d *analysis.Document) []byte {
	v := newView(d)
	quote := strings.NewReplacer("\\", "\\\\", "\"", "\\\"", "\n", "\\n")
	by, help := "", strings.Join(append([]string{""}, ForeignWords(d)...), "; ")
	if len(d.Run.ImportedFrom) > 0 {
		by = `,measured_by="` + quote.Replace(v.measuredBy()) + `"`
	}
	var b bytes.Buffer
	for _, m := range d.Metrics {
		var lines []string
		for _, c := range v.all {
			x, ok := c.Metrics[m.Name]
			if !ok {
				continue
			}
			labels := fmt.Sprintf("run=%q,cell=\"%s\"", d.Run.ID, quote.Replace(printable(c.Label))) + by
			for _, name := range v.sorted(c.Factors) {
				labels += "," + labelName(name) + `="` + quote.Replace(printable(c.Factors[name])) + `"`
			}
			stats := []struct {
				name  string
				value float64
			}{{"median", x.Median}, {"low", x.Low}, {"high", x.High}, {"n", float64(x.N)}}
			if x.N < 2 { // no interval
				stats = slices.Delete(stats, 1, 3)
			}
			for _, s := range stats {
				lines = append(lines, fmt.Sprintf("chokepoint_%s{%s,stat=%q} %s\n", labelName(m.Name), labels,
					s.name, strconv.FormatFloat(s.value, 'g', -1, 64)))
			}
		}
		if len(lines) > 0 {
			name := "chokepoint_" + labelName(m.Name)
			fmt.Fprintf(&b, "# TYPE %s gauge\n# HELP %s %s\n%s", name, name,
				quote.Replace(printable(cmp.Or(m.Label, m.Name)+" in "+m.Unit)+help), strings.Join(lines, ""))
		}
	}
	b.WriteString("# EOF\n")
	return b.Bytes()
}

// labelName is a name in the letters that OpenMetrics has for one; "f_" keeps factors apart from our own.
func labelName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, name)
	if slices.Contains([]string{"run", "cell", "stat", "measured_by"}, name) {
		return "f_" + name
	}
	return name
}

// The elements of a JUnit report, as CI systems read them.
type (
	junitSuite struct {
		XMLName    xml.Name        `xml:"testsuite"`
		Name       string          `xml:"name,attr"`
		Tests      int             `xml:"tests,attr"`
		Failures   int             `xml:"failures,attr"`
		Errors     int             `xml:"errors,attr"`
		Skipped    int             `xml:"skipped,attr"`
		Time       string          `xml:"time,attr,omitempty"`
		Properties []junitProperty `xml:"properties>property,omitempty"`
		Cases      []junitCase     `xml:"testcase"`
	}
	junitProperty struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitCase struct {
		Class   string       `xml:"classname,attr"`
		Name    string       `xml:"name,attr"`
		Failure *junitReason `xml:"failure"`
		Error   *junitReason `xml:"error"`
		Skipped *junitReason `xml:"skipped"`
	}
	junitReason struct {
		Message string `xml:"message,attr"`
	}
)

func (s *junitSuite) tell(name, value string) {
	s.Properties = append(s.Properties, junitProperty{name, printable(value)})
}

func (s *junitSuite) add(c junitCase) {
	s.Tests++
	switch {
	case c.Failure != nil:
		s.Failures++
	case c.Error != nil:
		s.Errors++
	case c.Skipped != nil:
		s.Skipped++
	}
	s.Cases = append(s.Cases, c)
}

func (s *junitSuite) encode() ([]byte, error) {
	b, err := xml.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode JUnit report: %v", err)
	}
	return append([]byte(xml.Header), append(b, '\n')...), nil
}

// JUnit is the run as a CI shows it: a test for each cell, which is an error where it has no number, and for
// each requirement in each cell that it speaks of, which fails where it is missed. What was skipped is
// skipped, with the reason.
func JUnit(d *analysis.Document) ([]byte, error) {
	v := newView(d)
	s := &junitSuite{Name: printable("chokepoint " + d.Run.Plan + " " + d.Run.ID)}
	if !d.Run.Ended.IsZero() {
		s.Time = strconv.FormatFloat(d.Run.Ended.Sub(d.Run.Started).Seconds(), 'f', 3, 64)
	}
	if len(d.Run.ImportedFrom) > 0 {
		s.tell("measured_by", v.measuredBy())
	}
	for _, w := range ForeignWords(d) {
		s.tell("foreign", w)
	}
	for _, c := range v.all {
		t := junitCase{Class: "cell", Name: printable(c.Label)}
		if c.Runs == 0 {
			t.Error = &junitReason{"no trial has a number"}
			for _, r := range c.Reasons {
				t.Error.Message = printable(r.Text)
			}
		}
		s.add(t)
	}
	for _, x := range d.Thresholds {
		t := junitCase{Class: "requirement", Name: printable(x.Requirement + thresholdCell(v, x.Factors))}
		if !x.Met {
			t.Failure = &junitReason{printable(cmp.Or(x.Reason, "got "+v.text(x.Metric, x.Value)))}
		}
		s.add(t)
	}
	for _, x := range d.Skipped {
		s.add(junitCase{Class: "cell", Name: printable(v.setWords(x.Factors, v.sorted(x.Factors))),
			Skipped: &junitReason{printable(x.Reason)}})
	}
	return s.encode()
}

func thresholdCell(v *view, f record.Factors) string {
	if c := v.cell[f.Key()]; c != nil && len(f) > 0 {
		return ", " + c.Label
	}
	return ""
}

// ComparisonJUnit is the comparison of two runs as a CI shows it: a test for each cell that was compared,
// which fails where the second run is worse, or has lost it. labels are the cells', by key.
func ComparisonJUnit(c *analysis.RunComparison, labels map[string]string) ([]byte, error) {
	s := &junitSuite{Name: "chokepoint compare " + c.A.ID + " " + c.B.ID}
	for i, run := range []analysis.RunHead{c.A, c.B} {
		if from := strings.Join(run.ImportedFrom, ", "); from != "" {
			s.tell("measured_by of "+string(rune('A'+i)), from)
		}
	}
	worse := map[string][]string{}
	var keys []string
	for _, r := range c.Regressions {
		text := r.Text
		if r.Suspect {
			text += " (suspect)"
		}
		worse[r.Factors.Key()] = append(worse[r.Factors.Key()], text)
		keys = once(keys, r.Factors.Key())
	}
	for _, x := range c.Comparisons {
		keys = once(keys, x.Factors.Key())
	}
	for _, key := range keys {
		t := junitCase{Class: "comparison", Name: printable(labels[key])}
		if texts := worse[key]; len(texts) > 0 {
			t.Failure = &junitReason{printable(strings.Join(texts, "; "))}
		}
		s.add(t)
	}
	return s.encode()
}

// WGBench has a row for each WireGuard cell of TCP in the form of the tables that owners of routers share
// (github.com/cyyself/wg-bench): device and CPU, system and kernel, rate, note. A run without such a cell is
// refused.
func WGBench(d *analysis.Document) ([]byte, error) {
	v := newView(d)
	var device, system []string
	for _, e := range d.Environment {
		if e.Node == "router" || e.Node == "host" && device == nil {
			device = []string{cmp.Or(e.Facts["product"], e.Facts["cpu_model"]), e.Facts["cpu_model"]}
			system = []string{cmp.Or(e.Facts["distribution"], "Linux"), e.Facts["kernel"]}
		}
	}
	column := func(parts []string) string {
		parts = slices.Compact(slices.DeleteFunc(parts, func(p string) bool { return p == "" }))
		return escape(strings.Join(parts, " / "))
	}
	var b bytes.Buffer
	for _, c := range v.all {
		x, ok := c.Metrics[goodput]
		if !ok || !strings.HasPrefix(factor.Tunnel.Of(c.Factors), "wireguard") || packets(c) {
			continue
		}
		note := fmt.Sprintf("%s; median of %d, measured by %s", c.Label, x.N, v.measuredBy())
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", column(slices.Clone(device)), column(slices.Clone(system)),
			wgRate(x.Median), escape(note))
	}
	if b.Len() == 0 {
		return nil, check.WithHint(fmt.Errorf("write run %s for wg-bench: no cell has goodput through "+
			"WireGuard", d.Run.ID), "other formats hold what there is; chokepoint report --help lists them")
	}
	return b.Bytes(), nil
}

// wgRate is a rate as iperf3 writes it.
func wgRate(bps float64) string {
	prefix := ""
	for _, p := range []string{"K", "M", "G"} {
		if bps >= 1000 {
			bps, prefix = bps/1000, p
		}
	}
	return strconv.FormatFloat(bps, 'g', 3, 64) + " " + prefix + "bits/sec"
}
