package history

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// night makes the run of a night. A value of 0 is a run that failed.
func night(i int, value float64, firmware string) Run {
	x := record.CellResult{Grade: "valid", Metric: metrics.Goodput}
	if value > 0 {
		v := record.Estimate{N: 3, Median: value, Low: value, High: value}
		x.Metrics = map[string]record.Estimate{metrics.Goodput: v}
	} else {
		x.Grade = "failed"
		x.Why = "the tunnel did not come up"
	}

	return Run{
		ID:          fmt.Sprintf("night-%02d-%s", i, firmware),
		Started:     time.Date(2026, 1, 1, 3, 0, 0, 0, time.UTC).AddDate(0, 0, i),
		ResultFacts: record.ResultFacts{Firmware: firmware},
		Results:     []record.CellResult{x},
	}
}

// nights makes a series with a step at a night, which changes the firmware from a to b.
func nights(seed uint64, n, at int, step float64) (runs []Run) {
	r := rand.New(rand.NewPCG(seed, 3))
	for i := range n {
		v := 1e9 * (1 + .01*r.NormFloat64())
		firmware := "a"
		if i >= at {
			v *= 1 + step
			firmware = "b"
		}

		runs = append(runs, night(i, v, firmware))
	}
	return runs
}

func of(runs []Run, canary string) Cell {
	return Of(record.CellResult{Label: "no tunnel", Metric: metrics.Goodput}, runs, "", canary)
}

// A step is one change with its place, size and direction; what fails is no number, and no change.
func TestStepIsOneChange(t *testing.T) {
	runs := nights(1, 20, 12, -.1)
	runs[3] = night(3, 0, "a")
	runs[12] = night(12, 0, "b")
	c := of(runs, "")
	if len(c.Points) != 20 || c.Points[3].Value != nil || c.Points[3].Why == "" || len(c.Changes) != 1 {
		t.Fatalf("%d points, changes %+v, want 20 and one", len(c.Points), c.Changes)
	}

	x := c.Changes[0]
	if x.Before != "night-11-a" || x.After != "night-13-b" || x.Better != Worse || x.Ratio < .88 ||
		x.Ratio > .92 || x.Low == nil || *x.Low > x.Ratio || *x.High < x.Ratio {
		t.Errorf("got %+v", x)
	}

	got := c.ChangeAt(c.Points[13])
	if got == nil || got.After != x.After || c.ChangeAt(c.Points[14]) != nil {
		t.Errorf("change at the run after it: got %v", got)
	}
}

// A change is proposed by the first runs after it, and a later one of the same firmware decides.
func TestRetestDecides(t *testing.T) {
	last := func(runs []Run) Change {
		c := of(runs, "")
		if len(c.Changes) != 1 {
			t.Fatalf("changes %+v, want one", c.Changes)
		}
		return c.Changes[0]
	}
	first := last(nights(2, 15, 12, -.1)) // three runs after it
	if first.Status != Proposed || first.Retests != 0 {
		t.Errorf("without a retest: %+v", first)
	}

	if x := last(nights(2, 18, 12, -.1)); x.Status != Confirmed || x.Retests == 0 {
		t.Errorf("with retests: %+v", x)
	}

	runs := nights(2, 18, 12, -.1)
	for i := range runs[15:] {
		runs[15+i].Firmware = "c"
	}

	if x := last(runs); x.Status != Proposed || x.Retests != 0 {
		t.Errorf("retested with another firmware: %+v", x)
	}

	runs = append(runs, night(18, 1e9, "b")) // and that of the change has the old level
	if x := last(runs); x.Status != NotRepeated {
		t.Errorf("not repeated: %+v", x)
	}
}

// A step smaller than the smallest relevant one is none, and neither is one in three runs.
func TestNoChange(t *testing.T) {
	for name, runs := range map[string][]Run{
		"none": nil, "three runs": nights(1, 3, 2, -.5), "one percent": nights(3, 200, 100, -.01),
		"failed runs": {night(0, 0, "a"), night(1, 0, "a")},
	} {
		if c := of(runs, ""); len(c.Changes) > 0 {
			t.Errorf("%s: changes %+v", name, c.Changes)
		}
	}
}

// A canary that changes at the same time is the testbed's, one that does not is not, and a short one does
// not know.
func TestCanaryKnowsTheTestbed(t *testing.T) {
	for _, c := range []struct {
		step float64 // of the canary
		from int     // its first night
		want string
	}{
		{-.1, 0, TestbedChanged},
		{0, 0, TestbedUnchanged},
		{.1, 0, TestbedUnchanged},
		{0, 10, TestbedUnknown},
	} {
		runs := nights(4, 24, 12, -.1)
		for i, r := range nights(5, 24, 12, c.step)[c.from:] {
			r.Firmware = "release 23.05"
			r.ID = fmt.Sprint("canary-", i)
			runs = append(runs, r)
		}

		cell := of(runs, "23.05")
		if len(cell.Points) != 24 || len(cell.Changes) != 1 || cell.Changes[0].Testbed != c.want {
			t.Errorf("canary with a step of %v from %d on: %+v, want %s", c.step, c.from, cell.Changes,
				c.want)
		}

		x, bad := cell.Regressed(false)
		if bad != (c.want != TestbedChanged) {
			t.Errorf("regressed: got %v for %+v", bad, x)
		}
	}
}

// Suspect runs count, and a regression of suspect runs only where it is asked for. An improvement is none.
func TestRegressed(t *testing.T) {
	runs := nights(6, 20, 12, -.1)
	for i := range runs {
		runs[i].Results[0].Grade = "suspect"
	}

	c := of(runs, "")
	_, plain := c.Regressed(false)
	_, too := c.Regressed(true)
	if plain || !too {
		t.Errorf("suspect regression: got %v, with suspects %v", plain, too)
	}

	c = of(nights(6, 20, 12, .1), "")
	if _, bad := c.Regressed(true); bad || c.Changes[0].Better != Better {
		t.Errorf("improvement: %+v", c.Changes)
	}
}

// A long time without runs is a gap; the time between two usual ones is none.
func TestGaps(t *testing.T) {
	runs := nights(7, 10, 10, 0)
	for i := range runs[5:] {
		runs[5+i].Started = runs[5+i].Started.AddDate(0, 0, 9)
	}

	for i, p := range of(runs, "").Points {
		want := 0.0
		if i == 5 {
			want = 10
		}

		if p.GapDays != want {
			t.Errorf("gap before run %d: got %v days, want %v", i, p.GapDays, want)
		}
	}
}

// Runs that vary the firmware have two points of one time: the time between runs is that of others, and a
// change is at one of the two.
func TestRunsOfTwoFirmwares(t *testing.T) {
	runs := nights(1, 20, 10, -.1)
	for i := range runs {
		runs[i].Started = runs[i].Started.AddDate(0, 0, 2*i) // three days apart
		second := runs[i].Results[0]
		second.Firmware = "second"
		runs[i].Results = append(runs[i].Results, second)
	}

	c := of(runs, "")
	marked := 0
	for _, p := range c.Points {
		if p.GapDays != 0 {
			t.Errorf("gap of %v days before run %s, want none", p.GapDays, p.Run)
		}

		if c.ChangeAt(p) != nil {
			marked++
		}
	}

	if len(c.Changes) != 1 || marked != 1 {
		t.Errorf("changes %+v at %d points, want one at one", c.Changes, marked)
	}
}

// In a run that varied the firmware the cell has a result of each, whose kernel was not read.
func TestFirmwareOfAResult(t *testing.T) {
	r := night(0, 1e9, "24.10.1")
	r.Kernel = "6.6"
	other := r.Results[0]
	other.Firmware = "24.10.0"
	r.Results = append(r.Results, other)
	points := of([]Run{r}, "").Points
	if len(points) != 2 || points[0].Firmware != "24.10.1" || points[0].Kernel != "6.6" ||
		points[1].Firmware != "24.10.0" || points[1].Kernel != "" {
		t.Errorf("got %+v", points)
	}
}
