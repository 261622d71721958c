package report

import (
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestValidityRequirement: a requirement of validity is shown with its reason, and without a number.
func TestValidityRequirement(t *testing.T) {
	d := sampleDocument()
	d.Thresholds = []comparison.Threshold{{
		Requirement: "validity = valid",
		Factors:     d.Cells[0].Factors,
		Metric:      record.Validity,
		Op:          "=",
		Validity:    evidence.GradeSuspect,
		Reason:      "the cell is suspect: throttled: hot",
	}}
	text := strings.Join(strings.Fields(Text(d, 200, false)), " ")
	want := "missed: validity = valid in " + printable(d.Cells[0].Label) +
		": the cell is suspect: throttled: hot"
	if !strings.Contains(text, want) {
		t.Errorf("got no %q: %s", want, text)
	}
}

// TestUncheckedRequirement: every form says of a requirement whose cell was not reached that it was not
// checked, and counts it as neither met nor missed.
func TestUncheckedRequirement(t *testing.T) {
	d := interruptedDocument()
	for i, validity := range []string{evidence.GradeNotReached, evidence.GradeValid, evidence.GradeValid} {
		d.Thresholds = append(d.Thresholds, comparison.Threshold{
			Requirement: "goodput >= 1G",
			Factors:     d.Cells[i].Factors,
			Metric:      goodput,
			Met:         i == 1,
			Validity:    validity,
		})
	}

	for ext, render := range renderers() {
		out, err := render(d)
		if err != nil {
			t.Fatal(err)
		}

		text := strings.Join(strings.Fields(string(out)), " ")
		if ext != "json" && strings.Contains(text, "2 requirements of 3 missed") {
			t.Errorf("%s counts what was not checked as missed: %s", ext, text)
		}

		if !isCSV(ext) && ext != "json" && !strings.Contains(text, "not checked") {
			t.Errorf("%s does not say that a requirement was not checked: %s", ext, text)
		}
	}

	var s Section
	thresholdSection(newView(d), &s)
	if s.Lead != "1 of 3 met; not checked: 1." {
		t.Errorf("the section begins with %q", s.Lead)
	}
}
