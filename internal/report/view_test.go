package report

import (
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
)

func TestIntervalName(t *testing.T) {
	for _, test := range []struct {
		value statistics.Value
		want  string
	}{
		{statistics.Value{Interval: statistics.IntervalRange}, "range"},
		{statistics.Value{Interval: statistics.IntervalOrder, Level: .96875}, "96.9 % interval"},
		{statistics.Value{Interval: statistics.IntervalPooled}, "range of the trials that carry it"},
		{statistics.Value{Interval: statistics.IntervalPooled, Level: .95},
			"95.0 % interval over all probes"},
		{statistics.Value{Interval: statistics.IntervalSingle}, "single value"},
	} {
		if got := intervalName(test.value); got != test.want {
			t.Errorf("%s, level %v: %q, want %q", test.value.Interval, test.value.Level, got, test.want)
		}
	}
}
