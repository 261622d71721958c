package analysis

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/quick"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// bisected answers a bisection of versions whose two cells have ratios to the first version: up, and down.
type bisected struct {
	names   []string
	up      []float64
	down    []float64
	lacking int // the version without the cell up; 0: none
	suspect int // this many runs of the cell up in versions between the ends are suspect
	skipped map[int]string
	wanted  string

	rng *rand.Rand
	now time.Time
}

func (b *bisected) document(v int) *Document {
	b.now = b.now.Add(2 * time.Minute)
	d := &Document{Metrics: []record.Metric{{Name: metrics.Goodput, Better: record.Higher}}}
	d.Run.Started = b.now
	for i, ratios := range [][]float64{b.up, b.down} {
		cell := Cell{Runs: 1, Cell: metrics.Cell{
			Factors: quick.Factors("direction", []string{"up", "down"}[i], "firmware", b.names[v]),
			Label:   []string{"up", "down"}[i],
			Grade:   evidence.GradeValid,
		}}
		if between := v > 0 && v < len(b.names)-1; i == 0 && between && b.suspect > 0 {
			b.suspect--
			cell.Grade = evidence.GradeSuspect
		}

		rate := 1e9 * ratios[v] * math.Exp(.003*b.rng.NormFloat64())
		cell.Metrics = map[string]statistics.Value{metrics.Goodput: {Median: rate}}
		if i > 0 || v != b.lacking || v == 0 {
			d.Cells = append(d.Cells, cell)
		}
	}
	return d
}

// bisect measures until there is an answer.
func (b *bisected) bisect(t *testing.T) *Bisection {
	t.Helper()
	b.rng = rand.New(rand.NewPCG(1, 2))
	if b.skipped == nil {
		b.skipped = map[int]string{}
	}

	var blocks []VersionBlock
	add := func(versions ...int) {
		block := VersionBlock{Block: len(blocks) + 1, Runs: make([]*Document, len(b.names))}
		for _, v := range versions {
			block.Runs[v] = b.document(v)
		}
		blocks = append(blocks, block)
	}
	wanted := func(label string) bool { return strings.Contains(label, b.wanted) }
	for range 2 * comparison.VersionBlocks {
		add(0, len(b.names)-1)
	}

	for range 50 {
		x := Bisect("id", b.names, blocks, wanted, b.skipped)
		v, more := x.Next()
		if !more {
			return x
		}

		add(v)
	}

	t.Fatal("no answer after 50 runs")
	return nil
}

// sequence returns n ratios: 1, and another one from some version on.
func sequence(n, from int, ratio float64) []float64 {
	out := slices.Repeat([]float64{1}, n)
	for v := from; v < n; v++ {
		out[v] = ratio
	}
	return out
}

// TestBisectionAnswers: the cell with the clearest change is followed, or the one that is wanted; the answer
// names the culprit, its ratio and that of the version before it.
func TestBisectionAnswers(t *testing.T) {
	names := strings.Split("abcdefgh", "")
	for _, tt := range []struct {
		name     string
		of       bisected
		outcome  string
		culprits string
		summary  string
		worse    bool
	}{
		{"the clearest change", bisected{up: sequence(8, 3, .9), down: sequence(8, 6, .97)},
			comparison.BisectCulprit, "[d]", "d is the first version that changed the goodput of up", true},
		{"the wanted cell", bisected{up: sequence(8, 3, .9), down: sequence(8, 6, .97), wanted: "down"},
			comparison.BisectCulprit, "[g]", "Ratio to the good end: f: ×", true},
		{"an improvement", bisected{up: sequence(8, 3, 1.1), down: sequence(8, 0, 1)},
			comparison.BisectCulprit, "[d]", "d: ×1.1", false},
		{"the first after the good end", bisected{up: sequence(8, 1, .9), down: sequence(8, 0, 1)},
			comparison.BisectCulprit, "[b]", "a: ×0.999", true},
		{"a version without a number", bisected{up: sequence(8, 4, .9), down: sequence(8, 0, 1), lacking: 3},
			comparison.BisectCulprit, "[d e]", "those before the last cannot be measured: d, e.", true},
		{"two steps", bisected{up: []float64{1, 1, .95, .95, .95, .95, .9, .9}, down: sequence(8, 0, 1)},
			comparison.BisectSeveral, "", "No single culprit: ", true},
		{"no change", bisected{up: sequence(8, 0, 1), down: sequence(8, 0, 1)}, BisectSame, "[]",
			"The ends are the same", false},
		{"a change of another cell", bisected{up: sequence(8, 3, .9), down: sequence(8, 0, 1), wanted: "down"},
			BisectSame, "[]", "The ends are the same", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.of.names = names
			x := tt.of.bisect(t)
			text := strings.Join(x.Summary, "\n")
			if x.Outcome != tt.outcome || tt.culprits != "" && fmt.Sprint(x.Culprits) != tt.culprits ||
				!strings.Contains(text, tt.summary) || x.Worse() != tt.worse {
				t.Errorf("got %s %v, worse %v:\n%s\nwant %s %s, worse %v: %s", x.Outcome, x.Culprits,
					x.Worse(), text, tt.outcome, tt.culprits, tt.worse, tt.summary)
			}

			boots := 0
			for v, row := range x.Versions {
				boots += row.Boots
				want := sideGood
				if tt.of.up[v] != 1 && x.Cell == "up" || tt.of.down[v] != 1 && x.Cell == "down" {
					want = sideBad
				}

				if x.Outcome == comparison.BisectCulprit && row.Side != "" && row.Side != want {
					t.Errorf("%s: side %s, want %s", row.Name, row.Side, want)
				}
			}

			if want := 4*comparison.VersionBlocks + x.Boots; boots != want {
				t.Errorf("boots: got %d, want %d", boots, want)
			}

			if tt.of.lacking > 0 && x.Versions[tt.of.lacking].Skipped != "no number of this cell" {
				t.Errorf("got %+v, want the reason", x.Versions[tt.of.lacking])
			}
		})
	}
}

// TestBisectionRepeatsSuspectRuns: a version whose only run is suspect is measured once more, and only once.
func TestBisectionRepeatsSuspectRuns(t *testing.T) {
	boots := map[int]int{}
	for _, suspect := range []int{0, 1, 50} {
		b := &bisected{names: strings.Split("abcd", ""), up: sequence(4, 2, .9), down: sequence(4, 0, 1),
			suspect: suspect}
		x := b.bisect(t)
		if x.Outcome != comparison.BisectCulprit || !slices.Equal(x.Culprits, []string{"c"}) {
			t.Fatalf("%d suspect: got %s %v, want c", suspect, x.Outcome, x.Culprits)
		}

		boots[suspect] = x.Versions[1].Boots + x.Versions[2].Boots
		for _, v := range x.Versions {
			if v.Suspect == 1 && v.Boots == 1 {
				t.Errorf("%d suspect: %s has one suspect run", suspect, v.Name)
			}
		}
	}

	if boots[0] != 2 || boots[1] != 3 || boots[50] != 4 {
		t.Errorf("got %v boots between the ends, want 2, 3 and 4", boots)
	}
}

// TestBisectionLeavesOutSuspectVersions: a version that is left out is not measured once more.
func TestBisectionLeavesOutSuspectVersions(t *testing.T) {
	b := bisected{names: strings.Split("abcd", ""), up: sequence(4, 2, .9), down: sequence(4, 0, 1),
		rng: rand.New(rand.NewPCG(1, 2))}
	var blocks []VersionBlock
	for block := 1; block <= 2*comparison.VersionBlocks; block++ {
		blocks = append(blocks, VersionBlock{block, []*Document{b.document(0), nil, nil, b.document(3)}})
	}

	d := b.document(1)
	for i := range d.Cells {
		d.Cells[i].Grade = evidence.GradeSuspect
	}

	blocks = append(blocks, VersionBlock{len(blocks) + 1, []*Document{nil, d, nil, nil}})
	for _, skipped := range []map[int]string{{}, {1: "it does not boot"}} {
		x := Bisect("id", b.names, blocks, func(string) bool { return true }, skipped)
		again, ok := x.Next()
		if !ok || (again == 1) != (skipped[1] == "") {
			t.Errorf("left out: %v: got version %d and %t", skipped, again, ok)
		}
	}
}

// TestBisectionMarksSuspectRuns: the answer says which runs of its cell are in doubt.
func TestBisectionMarksSuspectRuns(t *testing.T) {
	b := bisected{names: []string{"a", "b"}, up: sequence(2, 1, .9), down: sequence(2, 2, 1),
		rng: rand.New(rand.NewPCG(1, 2))}
	var blocks []VersionBlock
	for block := 1; block <= 2*comparison.VersionBlocks+1; block++ {
		pair := []*Document{b.document(0), b.document(1)}
		if block > 2*comparison.VersionBlocks {
			pair[1] = nil
		} else if block <= 2 {
			pair[1].Cells[0].Grade = evidence.GradeSuspect
			pair[0].Cells[1].Grade = evidence.GradeSuspect // of another cell
		}

		blocks = append(blocks, VersionBlock{block, pair})
	}

	x := Bisect("id", b.names, blocks, func(string) bool { return true }, map[int]string{})
	if x.Outcome != comparison.BisectCulprit || x.Versions[0].Suspect != 0 || x.Versions[1].Suspect != 2 ||
		!slices.Contains(x.Summary, "Suspect: 2 of 12 runs of b.") {
		t.Errorf("got %s, %+v, %q, want two suspect runs of b", x.Outcome, x.Versions, x.Summary)
	}
}

// TestBisectionOfALostCell: a cell that the bad end lost is the answer, though another cell has a step.
func TestBisectionOfALostCell(t *testing.T) {
	for _, tt := range []struct {
		name, wanted string
		of           bisected
		outcome      string
	}{
		{"0", "", bisected{up: sequence(3, 1, 0), down: sequence(3, 1, .9)}, BisectLost},
		{"missing", "", bisected{up: sequence(3, 3, 1), down: sequence(3, 1, .9), lacking: 2}, BisectLost},
		{"not wanted", "down", bisected{up: sequence(3, 1, 0), down: sequence(3, 1, .9)},
			comparison.BisectCulprit},
	} {
		b := &tt.of
		b.names, b.wanted = []string{"a", "b", "c"}, tt.wanted
		x := b.bisect(t)
		if lost := tt.outcome == BisectLost; x.Outcome != tt.outcome || !x.Worse() || lost && x.Cell != "up" {
			t.Errorf("%s: got %s of %s, worse %v: %q", tt.name, x.Outcome, x.Cell, x.Worse(), x.Summary)
		}
	}

	// losing what is better the lower it is, is no loss
	b := bisected{names: []string{"a", "b"}, up: sequence(2, 1, 0), down: sequence(2, 2, 1),
		rng: rand.New(rand.NewPCG(1, 2))}
	var blocks []VersionBlock
	for block := 1; block <= comparison.VersionBlocks; block++ {
		pair := []*Document{b.document(0), b.document(1)}
		for _, d := range pair {
			d.Metrics[0].Better = record.Lower
		}

		blocks = append(blocks, VersionBlock{block, pair})
	}

	x := Bisect("id", b.names, blocks, func(string) bool { return true }, map[int]string{})
	if x.Outcome == BisectLost || x.Worse() {
		t.Errorf("0 where less is better: got %s, worse %v", x.Outcome, x.Worse())
	}
}

// TestBisectionWithoutReproduction: a change that the repeat does not show ends the bisection, with the
// reason.
func TestBisectionWithoutReproduction(t *testing.T) {
	b := bisected{names: []string{"a", "b", "c"}, up: sequence(3, 2, .9), down: sequence(3, 0, 1),
		rng: rand.New(rand.NewPCG(1, 2))}
	var blocks []VersionBlock
	for block := 1; block <= 2*comparison.VersionBlocks; block++ {
		if block > comparison.VersionBlocks {
			b.up[2] = 1
		}

		blocks = append(blocks, VersionBlock{block, []*Document{b.document(0), nil, b.document(2)}})
	}

	any := func(string) bool { return true }
	for _, n := range []int{1, comparison.VersionBlocks - 1, comparison.VersionBlocks, len(blocks) - 1} {
		x := Bisect("id", b.names, blocks[:n], any, map[int]string{})
		if _, more := x.Next(); more || x.Outcome != "" || len(x.Summary) != 1 {
			t.Errorf("%d blocks: got %q, %q, want no answer yet", n, x.Outcome, x.Summary)
		}
	}

	x := Bisect("id", b.names, blocks, any, map[int]string{})
	if _, more := x.Next(); more || x.Outcome != BisectChance ||
		!strings.Contains(strings.Join(x.Summary, "\n"), "up: goodput ") {
		t.Errorf("got %s, %q, want not reproducible", x.Outcome, x.Summary)
	}
}
