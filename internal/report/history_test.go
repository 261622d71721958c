package report

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/history"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func historyPoints(days int) (points []history.Point) {
	for i := range days {
		points = append(points, history.Point{
			Run:     "night",
			Started: time.Date(2026, 1, 1+i, 3, 0, 0, 0, time.UTC),
			Value:   &record.Estimate{N: 1, Median: 1e9, Low: 1e9, High: 1e9},
			Grade:   "valid",
		})
	}
	return points
}

// Runs after the last one of the canary lie inside the chart.
func TestHistoryChartHoldsAllRuns(t *testing.T) {
	h := &history.History{Cells: []history.Cell{{
		Label:  "no tunnel",
		Metric: metrics.Of(metrics.Goodput),
		Points: historyPoints(10),
		Canary: historyPoints(2),
	}}}
	svg, err := HistorySVG(h)
	if err != nil {
		t.Fatal(err)
	}

	dots := regexp.MustCompile(`<circle[^>]* cx="([-0-9.]+)"`).FindAllSubmatch(svg, -1)
	if len(dots) < 12 {
		t.Fatalf("%d dots, want one for each of twelve runs", len(dots))
	}

	for _, d := range dots {
		x, err := strconv.ParseFloat(string(d[1]), 64)
		if err != nil || x < 0 || x > wideWidth {
			t.Errorf("dot at %s, %v, want 0 to %d", d[1], err, wideWidth)
		}
	}
}

// A change for the worse fails once it is confirmed, is skipped while it is proposed, and passes if it was
// not repeated.
func TestHistoryJUnitByStatus(t *testing.T) {
	for status, want := range map[string]string{
		history.Confirmed:   "<failure",
		history.Proposed:    "<skipped",
		history.NotRepeated: "<system-out>worse, not repeated",
	} {
		h := &history.History{Cells: []history.Cell{{
			Metric:  metrics.Of(metrics.Goodput),
			Points:  historyPoints(10),
			Changes: []history.Change{{Better: history.Worse, Status: status}},
		}}}
		b, err := HistoryJUnit(h, false)
		if err != nil {
			t.Fatal(err)
		}

		for _, mark := range []string{"<failure", "<skipped"} {
			if has := strings.Contains(string(b), mark); has != (mark == want) {
				t.Errorf("%s: %s in it: %v, want %v", status, mark, has, mark == want)
			}
		}

		if !strings.Contains(string(b), want) {
			t.Errorf("%s: no %s in %s", status, want, b)
		}
	}
}
