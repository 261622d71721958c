package comparison

import (
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestValidityIsRequired: only a valid cell meets the requirement, and the others say why they do not.
func TestValidityIsRequired(t *testing.T) {
	required := []record.Requirement{{Text: "validity = valid", Metric: record.Validity, Op: "="}}
	reasons := []evidence.Reason{{Kind: "background-load", Text: "busy"}, {Kind: "throttled", Text: "hot"}}
	for _, tt := range []struct {
		grade, reason string
		met           bool
	}{
		{evidence.GradeValid, "", true},
		{evidence.GradeSuspect, "the cell is suspect: background-load: busy; throttled: hot", false},
		{evidence.GradeFailed, "the cell failed: busy", false},
		{evidence.GradeNotReached, "the cell was not reached: busy", false},
	} {
		c := &metrics.Cell{Factors: record.Factors{"ip": "4"}, Grade: tt.grade}
		if !tt.met {
			c.Reasons = reasons
		}

		got := Thresholds(required, []*metrics.Cell{c}, nil)
		if len(got) != 1 || got[0].Met != tt.met || got[0].Reason != tt.reason ||
			got[0].Validity != tt.grade {
			t.Errorf("%s: got %+v", tt.grade, got)
		}
	}
}
