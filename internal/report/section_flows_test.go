package report

import (
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// shown is a document in each form for people, with plain spaces.
func shown(t *testing.T, d *analysis.Document) map[string]string {
	t.Helper()
	markdown, err := Markdown(d)
	if err != nil {
		t.Fatal(err)
	}

	page, err := HTML(d)
	if err != nil {
		t.Fatal(err)
	}

	plain := strings.NewReplacer("\u00a0", " ").Replace
	return map[string]string{"text": plain(Text(d, 200, false)), "markdown": plain(string(markdown)),
		"page": plain(string(page))}
}

func TestShortFlowsAndRequestsHaveTables(t *testing.T) {
	d := sampleDocument()
	value := func(x float64) statistics.Value {
		return statistics.Value{
			Spread: statistics.Spread{
				Low:      x * .9,
				High:     x * 1.1,
				N:        3,
				Interval: statistics.IntervalRange,
			},
			Median: x,
			Values: []float64{x * .9, x,
				x * 1.1},
		}
	}
	d.Metrics = append(d.Metrics, record.Metric{Name: flowRate, Unit: "flows/s"},
		record.Metric{Name: requestRate, Unit: "requests/s"})
	one := &d.Cells[0]
	two := &d.Cells[1]
	for name, x := range map[string]float64{flowRate: 4321, "flow_connect_p50_ns": 61e3,
		"flow_completion_p50_ns": 123e3, "flow_completion_p99_ns": 4.5e6,
		"flow_completion_medium_p50_ns": 7.75e6, "flow_failed_ratio": .015, "flow_unfinished_ratio": .002} {
		one.Metrics[name] = value(x)
	}

	one.Missing = map[string]string{"flow_connect_p99_ns": "the number of handshakes, 300, does not " +
		"carry p99"}
	for name, x := range map[string]float64{requestRate: 23456, "request_p50_ns": 41e3,
		"request_p99_ns": 95e3, "request_p999_ns": 322e3} {
		two.Metrics[name] = value(x)
	}

	for form, text := range shown(t, d) {
		for _, want := range []string{"4321 flows/s", "61.0 µs", "123 µs", "4.50 ms", "7.75 ms", "1.50 %",
			"23456 requests/s", "322 µs", "to 10 MB"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q", form, want)
			}
		}

		if strings.Contains(text, "below 100 kB") {
			t.Errorf("%s has a column without a number", form)
		}
	}

	got := flowTables(newView(sampleDocument()))
	if len(got) != 0 {
		t.Errorf("a run without flows has %d tables of them", len(got))
	}
}
