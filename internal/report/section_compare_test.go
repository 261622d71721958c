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
