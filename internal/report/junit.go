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
		Out     string       `xml:"system-out,omitempty"`
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

// JUnit writes the run for a CI: a test for each cell, which is an error where it has no number, and for each
// requirement in each cell that it names, which fails where it is missed. Cells that were skipped or not
// reached are skipped, with the reason; so are a suspect cell and a requirement met in one: neither passes.
// The output of a cell's test is its result, with interval, number of trials and validity.
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
		t := junitCase{Class: "cell", Name: printable(c.Label), Out: v.resultWords(c)}
		why := "no trial has a number"
		for _, r := range c.Reasons {
			why = r.Text
		}

		switch {
		case c.Grade == evidence.GradeNotReached:
			t.Skipped = &junitReason{printable(c.Grade + ": " + why)}
		case c.Runs == 0:
			t.Error = &junitReason{printable(why)}
		case c.Grade != evidence.GradeValid:
			t.Skipped = &junitReason{gradeWords(c)}
		}

		s.add(t)
	}

	for _, x := range d.Thresholds {
		t := junitCase{Class: "requirement", Name: printable(x.Requirement)}
		c := v.cell[x.Factors.Key()]
		if c != nil {
			t.Out = v.valueWords(c, x.Metric)
		}

		if c != nil && len(x.Factors) > 0 {
			t.Name += printable(", " + c.Label)
		}

		doubt := c != nil && c.Grade == evidence.GradeSuspect
		switch {
		case !x.Met:
			t.Failure = &junitReason{printable(cmp.Or(x.Reason, "got "+v.text(x.Metric, x.Value)))}
			if doubt {
				t.Failure.Message += "; the cell is " + gradeWords(c)
			}
		case doubt:
			t.Skipped = &junitReason{"met, but the cell is " + gradeWords(c)}
		}

		s.add(t)
	}

	for _, x := range d.Skipped {
		s.add(junitCase{
			Class:   "cell",
			Name:    printable(v.setWords(x.Factors, v.sorted(x.Factors))),
			Skipped: &junitReason{printable(x.Reason)},
		})
	}

	return s.encode()
}

// ComparisonJUnit writes the comparison of two runs for a CI: a test for each cell that was compared, which
// fails where the second run is worse, or has lost it, and is skipped where it is suspect in one of the runs
// or no comparison of it has a verdict. Its output is the comparisons. labels names the cells by key.
func ComparisonJUnit(c *analysis.RunComparison, labels map[string]string) ([]byte, error) {
	s := &junitSuite{Name: "chokepoint compare " + c.A.ID + " " + c.B.ID}
	for i, run := range []analysis.RunHead{c.A, c.B} {
		from := strings.Join(run.ImportedFrom, ", ")
		if from != "" {
			s.tell("measured_by of "+string(rune('A'+i)), from)
		}
	}

	worse := map[string][]string{}
	var keys []string
	for _, r := range c.Regressions {
		key := r.Factors.Key()
		text := r.Text
		if r.Suspect {
			text += " (suspect)"
		}

		worse[key] = append(worse[key], text)
		keys = once(keys, key)
	}

	compared := map[string][]comparison.Comparison{}
	for _, x := range c.Comparisons {
		key := x.Factors.Key()
		keys, compared[key] = once(keys, key), append(compared[key], x)
	}

	for _, key := range keys {
		t := junitCase{
			Class: "comparison",
			Name:  printable(labels[key]),
			Out:   printable(strings.Join(each(compared[key], comparedWords), "\n")),
		}
		texts := worse[key]
		if len(texts) > 0 {
			t.Failure = &junitReason{printable(strings.Join(texts, "; "))}
		} else if why := notCompared(compared[key]); why != "" {
			t.Skipped = &junitReason{why}
		}

		s.add(t)
	}

	return s.encode()
}

// comparedWords describes a comparison of two runs in a line.
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

// notCompared returns why a cell that is not worse has no verdict; "" where it has one.
func notCompared(all []comparison.Comparison) string {
	few := len(all) > 0
	suspect := false
	for _, x := range all {
		few = few && x.Verdict == statistics.TooFew()
		suspect = suspect || x.GradeA == evidence.GradeSuspect || x.GradeB == evidence.GradeSuspect
	}

	switch {
	case few:
		return statistics.TooFew()
	case suspect:
		return "suspect in one of the runs"
	}

	return ""
}
