package analysis

import (
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// busier gives the trials of a run other work of its machine, in cores.
func busier(d *Document, cores ...float64) *Document {
	for i := range d.Trials {
		if d.Trials[i].Metrics != nil {
			d.Trials[i].Metrics["host_foreign_cpu_ratio"] = cores[i%len(cores)]
		}
	}
	return d
}

// What else ran on the machine is a candidate cause, and the nodes that only one run has are one line.
func TestRunsDifferInConditions(t *testing.T) {
	a := busier(Derive(quickRun(3)), .30, .5, .68)
	b := busier(Derive(quickRun(3)), .95, 1, 1.01)
	facts := map[string]string{"kernel": "6.1", "cores": "4", "sysctl:x": "1"}
	a.Environment = []record.Environment{{Node: "host", Facts: facts}}
	b.Environment = []record.Environment{{Node: "host", Facts: facts}, {Node: "router", Facts: facts}}
	c := CompareRuns(a, b)
	var said []string
	for _, ch := range c.Changes {
		said = append(said, ch.Kind+" "+ch.Name+": "+ch.A+" → "+ch.B)
		if !ch.Cause {
			t.Errorf("%s is no cause", ch.Name)
		}
	}

	want := []string{
		"condition CPU time of other processes of the host: 0.30 cores to 0.68 cores, median 0.50 cores → " +
			"0.95 cores to 1.0 cores, median 1.0 cores",
		"environment nodes: host → host, router"}
	if !slices.Equal(said, want) {
		t.Errorf("what differs:\n%s\nwant\n%s", strings.Join(said, "\n"), strings.Join(want, "\n"))
	}

	if strings.Contains(strings.Join(c.Summary, " "), "Nothing that was recorded differs") {
		t.Errorf("the summary is %q", c.Summary)
	}

	// One trial of each run that is like those of the other hides no difference of all others.
	eight := func(cores ...float64) *Document { return busier(Derive(quickRun(8)), cores...) }
	c = CompareRuns(eight(.05, .06, .07, 1.2, .05, .06, .07), eight(.9, 1, 1.1, .04, .9, 1, 1.1))
	if !slices.ContainsFunc(c.Changes, func(ch Change) bool { return ch.Kind == "condition" }) {
		t.Errorf("a core more of other work: got %v", c.Changes)
	}

	same := CompareRuns(a, busier(Derive(quickRun(3)), .31, .5, .66))
	if slices.ContainsFunc(same.Changes,
		func(ch Change) bool { return ch.Kind == "condition" }) {
		t.Errorf("runs alike differ in %v", same.Changes)
	}
}

// Between two machines, what else ran on either end is one.
func TestPairsDifferInConditions(t *testing.T) {
	for _, end := range []string{"client", "server"} {
		run, trial := pairTrial()
		quiet := Derive(run, []record.Trial{trial})
		_, busy := pairTrial()
		after(&busy, table(&busy, end, "foreign"), "foreign_cpu_ns", 2e9)
		c := CompareRuns(quiet, Derive(run, []record.Trial{busy}))
		if !slices.ContainsFunc(c.Changes, func(ch Change) bool {
			return ch.Cause && ch.Name == "CPU time of other processes of the "+end
		}) {
			t.Errorf("others at work on the %s: what differs is %v", end, c.Changes)
		}
	}
}

// A cell is certainly lost, whatever the doubt about what it had, and an idle path is not in doubt because a
// load on it is.
func TestSuspectRegressions(t *testing.T) {
	run, trials := quickRun(8)
	f := quickFactors()
	compare := func(change func(a, b *Document)) map[string]bool {
		a := Derive(run, trials)
		b := Derive(run, trials)
		change(a, b)
		out := map[string]bool{}
		for _, r := range CompareRuns(a, b).Regressions {
			out[r.Metric] = r.Suspect
		}

		return out
	}
	lostCell := func(a, b *Document) {
		cellOf(t, a, f).Grade = evidence.GradeSuspect
		*cellOf(t, b, f) = Cell{Cell: metrics.Cell{Factors: f, Grade: evidence.GradeFailed}}
	}
	slowPath := func(doubtIdle bool) func(a, b *Document) {
		return func(a, b *Document) {
			for i := range b.Cells {
				b.Cells[i].Grade = evidence.GradeSuspect
			}

			for i := range b.Trials {
				k := &b.Trials[i]
				if v, ok := k.Metrics["rtt_idle_p50_ns"]; ok {
					k.Metrics["rtt_idle_p50_ns"] = 3 * v
				}

				if k.Kind == record.RowIdle && doubtIdle {
					k.Grade = evidence.GradeSuspect
				}
			}
		}
	}
	for _, tt := range []struct {
		name, metric string
		change       func(a, b *Document)
		suspect      bool
	}{
		{"a suspect cell that was lost", "", lostCell, false},
		{"an idle path under a suspect cell", "rtt_idle_p50_ns", slowPath(false), false},
		{"a suspect idle path", "rtt_idle_p50_ns", slowPath(true), true},
	} {
		if got, ok := compare(tt.change)[tt.metric]; !ok || got != tt.suspect {
			t.Errorf("%s: found %v, suspect %v, want %v", tt.name, ok, got, tt.suspect)
		}
	}
}

// Both values stand beside their ratio with their validity, and what is worse in a suspect cell says so.
func TestComparedRunsShowBothSides(t *testing.T) {
	run, trials := quickRun(8)
	a := Derive(run, trials)
	b := Derive(run, trials)
	for i := range b.Trials {
		v := b.Trials[i].Metrics
		if v[metrics.Goodput] > 0 {
			v[metrics.Goodput] /= 2
		}
	}

	cellOf(t, b, quickFactors()).Grade = evidence.GradeSuspect
	c := CompareRuns(a, b)
	for _, x := range c.Comparisons {
		if x.A == nil || x.B == nil || x.GradeA == "" || x.GradeB == "" {
			t.Fatalf("%s of %s lacks a side: %+v", x.Metric, x.Factors.Key(), x)
		}
	}

	suspect, sure := 0, 0
	for _, r := range c.Regressions {
		if r.Metric == metrics.Goodput && r.Suspect {
			suspect++
		} else if r.Metric == metrics.Goodput {
			sure++
		}
	}

	if suspect != 1 || sure < 3 {
		t.Errorf("%d regressions are suspect and %d are not: %+v", suspect, sure, c.Regressions)
	}
}
