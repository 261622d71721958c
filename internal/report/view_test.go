package report

import (
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
)

func TestIntervalName(t *testing.T) {
	for _, test := range []struct {
		value analysis.Value
		want  string
	}{
		{analysis.Value{Interval: analysis.IntervalRange}, "range"},
		{analysis.Value{Interval: analysis.IntervalOrder, Level: .96875}, "96.9 % interval"},
		{analysis.Value{Interval: analysis.IntervalPooled}, "range of the trials that carry it"},
		{analysis.Value{Interval: analysis.IntervalPooled, Level: .95}, "95.0 % interval over all probes"},
		{analysis.Value{Interval: analysis.IntervalSingle}, "single value"},
	} {
		if got := intervalName(test.value); got != test.want {
			t.Errorf("%s, level %v: %q, want %q", test.value.Interval, test.value.Level, got, test.want)
		}
	}
}
