package report

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

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
		Properties junitProperties `xml:"properties>property,omitempty"`
		Cases      []junitCase     `xml:"testcase"`
	}
	junitProperties []junitProperty
	junitProperty   struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitCase struct {
		Class      string          `xml:"classname,attr"`
		Name       string          `xml:"name,attr"`
		Properties junitProperties `xml:"properties>property,omitempty"`
		Failure    *junitReason    `xml:"failure"`
		Error      *junitReason    `xml:"error"`
		Skipped    *junitReason    `xml:"skipped"`
		Out        string          `xml:"system-out,omitempty"`
	}
	junitReason struct {
		Message string `xml:"message,attr"`
	}
)

func because(text string) *junitReason { return &junitReason{printable(text)} }

// add adds a property unless its value is empty.
func (p *junitProperties) add(name, value string) {
	if value != "" {
		*p = append(*p, junitProperty{name, printable(value)})
	}
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

// JUnit renders a run for CI systems. Each cell is a test, which is an error if the cell has no number. Each
// requirement is a test in every cell to which it applies, and fails if the requirement is missed. Tests of
// skipped and unreached cells are skipped, with the reason. Tests of suspect cells, and of requirements met
// in a suspect cell, are skipped or, if strict is set, fail.
//
// The properties of a cell's test are its id, its validity and the values of each key metric: median, unit,
// bounds of the interval and number of trials. They are named like the columns of CSV. The properties of a
// requirement's test are the compared value, its limit, unit, interval and number of trials. The output is
// the result in words.
func JUnit(d *analysis.Document, strict bool) ([]byte, error) {
	v := newView(d)
	s := &junitSuite{Name: printable("chokepoint " + d.Run.Plan + " " + d.Run.ID)}
	if !d.Run.Ended.IsZero() {
		s.Time = strconv.FormatFloat(d.Run.Ended.Sub(d.Run.Started).Seconds(), 'f', 3, 64)
	}

	s.Properties.add("measured_by", v.importedFrom())
	for _, w := range ForeignWords(d) {
		s.Properties.add("foreign", w)
	}

	shown := v.keyMetrics()
	for _, c := range v.all {
		s.add(v.cellCase(c, shown, strict))
	}

	for _, x := range d.Thresholds {
		s.add(v.requirementCase(x, strict))
	}

	for _, c := range v.skipped() {
		t := junitCase{
			Class:   "cell",
			Name:    printable(c.Label),
			Skipped: because(c.Reasons[0].Text),
		}
		t.tellCell(c)
		s.add(t)
	}

	return s.encode()
}

// cellCase returns the test of a cell's validity.
func (v *view) cellCase(c *analysis.Cell, shown []string, strict bool) junitCase {
	t := junitCase{Class: "cell", Name: printable(c.Label), Out: v.resultWords(c)}
	t.tellCell(c)
	for _, m := range shown {
		v.tellNumbers(&t, c, m, m+"_")
	}

	why := "no trial has a number"
	for _, r := range c.Reasons {
		why = r.Text
	}

	switch {
	case c.Grade == evidence.GradeNotReached:
		t.Skipped = because(c.Grade + ": " + why)
	case c.Runs == 0:
		t.Error = because(why)
	case c.Grade != evidence.GradeValid:
		t.doubt(gradeReasons(c), strict)
	}

	return t
}

// requirementCase returns the test of a requirement in a cell.
func (v *view) requirementCase(x comparison.Threshold, strict bool) junitCase {
	t := junitCase{Class: "requirement", Name: printable(x.Requirement)}
	c := v.cell[x.Factors.Key()]
	for _, k := range v.skipped() {
		if k.Factors.Key() == x.Factors.Key() {
			c = k
		}
	}

	if c != nil {
		if len(x.Factors) > 0 {
			t.Name += printable(", " + c.Label)
		}

		t.Out = v.valueWords(c, x.Metric)
		t.tellCell(c)
		t.Properties.add("metric", x.Metric)
		v.tellNumbers(&t, c, x.Metric, "")
	}

	if x.Metric != record.Validity {
		t.Properties.add("limit", x.Op+" "+decimal(x.Limit))
	}

	doubt := c != nil && suspect(c)
	switch {
	case v.Unchecked(x):
		t.Skipped = because("not checked: " + x.Reason)
	case !x.Met:
		t.Failure = because(cmp.Or(x.Reason, "got "+v.text(x.Metric, x.Value)))
		if doubt && x.Metric != record.Validity {
			t.Failure.Message += "; the cell is " + gradeReasons(c)
		}
	case doubt:
		t.doubt("met, but the cell is "+gradeReasons(c), strict)
	}

	return t
}

// doubt marks a test as skipped or, if strict is set, as failed.
func (t *junitCase) doubt(why string, strict bool) {
	if strict {
		t.Failure = because(why)
	} else {
		t.Skipped = because(why)
	}
}

// tellCell adds the cell's id and validity to a test.
func (t *junitCase) tellCell(c *analysis.Cell) {
	t.Properties.add("id", c.ID)
	t.Properties.add("validity", c.Grade)
	t.Properties.add("reasons", strings.Join(distinct(c.Reasons, reasonKind), " "))
}

// tellNumbers adds a cell's values of a metric as properties. The names of the properties begin with prefix.
func (v *view) tellNumbers(t *junitCase, c *analysis.Cell, metric, prefix string) {
	median, low, high, n := cellNumbers(c, metric)
	if n == "" {
		return
	}

	t.Properties.add(prefix+"median", median)
	t.Properties.add(prefix+"unit", v.unitOf(metric))
	t.Properties.add(prefix+"low", low)
	t.Properties.add(prefix+"high", high)
	t.Properties.add(prefix+"n", n)
}

// gradeReasons formats the grade of a cell with its reasons, such as "suspect: background-load: other
// processes …".
func gradeReasons(c *analysis.Cell) string {
	reasons := distinct(c.Reasons, func(r evidence.Reason) string { return r.Kind + ": " + r.Text })
	return printable(c.Grade + around(": ", strings.Join(reasons, "; "), ""))
}

// ComparisonJUnit renders the comparison of two runs for CI systems. Each compared cell is a test. The test
// fails if the second run is worse or lacks the cell. It is skipped if no comparison of the cell has a
// verdict. It is also skipped if the cell is suspect in one of the runs, unless strict is set.
//
// The properties are the cell's id and, for each comparison, the ratio of the second to the first run with
// its bounds. If a comparison has a difference instead of a ratio, the property has the suffix _difference.
// The output describes the comparisons in words. labels maps the keys of cells to their names.
func ComparisonJUnit(c *analysis.RunComparison, labels map[string]string, strict bool) ([]byte, error) {
	s := &junitSuite{Name: "chokepoint compare " + c.A.ID + " " + c.B.ID}
	for i, run := range []analysis.RunHead{c.A, c.B} {
		s.Properties.add("measured_by of "+string(rune('A'+i)), strings.Join(run.ImportedFrom, ", "))
	}

	worse := map[string][]string{}
	doubted := map[string][]string{}
	cells := map[string]record.Factors{}
	var keys []string
	for _, r := range c.Regressions {
		key := r.Factors.Key()
		if r.Suspect && !strict {
			doubted[key] = append(doubted[key], "suspect in one of the runs: "+r.Text)
		} else {
			worse[key] = append(worse[key], r.Text)
		}

		keys = once(keys, key)
		cells[key] = r.Factors
	}

	for _, f := range c.OnlyA {
		key := f.Key()
		keys = append(keys, key)
		cells[key] = f
		worse[key] = []string{c.LossWords(f)}
	}

	compared := map[string][]comparison.Comparison{}
	for _, x := range c.Comparisons {
		key := x.Factors.Key()
		keys = once(keys, key)
		cells[key] = x.Factors
		compared[key] = append(compared[key], x)
	}

	for _, key := range keys {
		t := junitCase{
			Class: "comparison",
			Name:  printable(labels[key]),
			Out:   printable(strings.Join(each(compared[key], comparedWords), "\n")),
		}
		t.Properties.add("id", cells[key].ID())
		for _, x := range compared[key] {
			tellCompared(&t, x)
		}

		why := cmp.Or(strings.Join(doubted[key], "; "), notCompared(compared[key], strict))
		if len(worse[key]) > 0 {
			t.Failure = because(strings.Join(worse[key], "; "))
		} else if why != "" {
			t.Skipped = because(why)
		}

		s.add(t)
	}

	return s.encode()
}

// tellCompared adds the numbers of a comparison, the validity of both sides and the verdict.
func tellCompared(t *junitCase, x comparison.Comparison) {
	name := x.Metric + "_ratio"
	if x.Difference {
		name = x.Metric + "_difference"
	}

	t.Properties.add(name, decimal(x.Ratio))
	t.Properties.add(name+"_low", decimal(x.Low))
	t.Properties.add(name+"_high", decimal(x.High))
	t.Properties.add(name+"_n", strconv.Itoa(x.N))
	t.Properties.add(name+"_verdict", x.Verdict)
	t.Properties.add(name+"_validity", joined(", ", x.GradeA, x.GradeB))
}

// comparedWords describes a comparison of two runs on one line.
func comparedWords(x comparison.Comparison) string {
	say := unit.Times
	if x.Difference {
		say = func(v float64) string { return metrics.Say(x.Metric, v) }
	}

	text := fmt.Sprintf("%s: %s (%s to %s), n = %d, %s", metrics.Label(x.Metric), say(x.Ratio), say(x.Low),
		say(x.High), x.N, x.Verdict)
	if x.GradeA != "" || x.GradeB != "" {
		text += ", " + x.GradeA + " and " + x.GradeB
	}

	return text
}

// notCompared returns why a cell has no verdict although it is not worse, or "" if it has one.
func notCompared(all []comparison.Comparison, strict bool) string {
	few := len(all) > 0
	suspect := false
	for _, x := range all {
		few = few && x.Verdict == statistics.TooFew()
		suspect = suspect || x.GradeA == evidence.GradeSuspect || x.GradeB == evidence.GradeSuspect
	}

	switch {
	case few:
		return statistics.TooFew()
	case suspect && !strict:
		return "suspect in one of the runs"
	}

	return ""
}
