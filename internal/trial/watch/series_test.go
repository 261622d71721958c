package watch

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func rows(s *series, columns []string, at ...int64) {
	row := make([]float64, len(columns))
	for _, t := range at {
		for i := range row {
			row[i] = float64(t)
		}

		s.add(t, 10, columns, row)
	}
}

func TestCutTakesTheEdgesAndBothSetsOfColumns(t *testing.T) {
	var s series
	rows(&s, []string{"a"}, 10, 20, 30)
	rows(&s, []string{"b", "a"}, 40, 50, 60)
	tests := []struct {
		name     string
		from, to int64
		want     []int64
	}{
		{"between samples", 25, 45, []int64{20, 30, 40, 50}},
		{"on samples", 20, 50, []int64{10, 20, 30, 40, 50, 60}},
		{"all", 0, 100, []int64{10, 20, 30, 40, 50, 60}},
		{"before the first", 0, 5, []int64{10}},
		{"after the last", 70, 80, []int64{60}},
	}
	for _, tt := range tests {
		table, cost := s.cut(tt.from, tt.to)
		d := cmp.Diff(table.T, tt.want)
		if d != "" {
			t.Errorf("%s: times (-got +want):\n%s", tt.name, d)
		}

		n := int64(len(tt.want)) - 1
		if cost.Reads != n || cost.CPUNs != 10*n {
			t.Errorf("%s: cost: got %+v, want %d reads", tt.name, cost, n)
		}
	}

	table, _ := s.cut(30, 40)
	if d := cmp.Diff(table.Names, []string{"a", "b"}); d != "" {
		t.Errorf("columns (-got +want):\n%s", d)
	}

	nan := math.NaN()
	if d := cmp.Diff(table.V, [][]float64{{20, 30, 40, 50}, {nan, nan, 40, 50}},
		cmpopts.EquateNaNs()); d != "" {
		t.Errorf("values (-got +want):\n%s", d)
	}
}

func TestCutOfNothingIsEmpty(t *testing.T) {
	var s series
	table, cost := s.cut(0, 100)
	if len(table.T) != 0 || cost.Reads != 0 {
		t.Errorf("got %d rows, %+v", len(table.T), cost)
	}
}

func TestSnapshotStaysWhileRowsAreAdded(t *testing.T) {
	var s series
	columns := []string{"a"}
	rows(&s, columns, 1, 2)
	view := s.snapshot()
	rows(&s, columns, 3)
	s.forget(100)
	table, _ := view.cut(0, 10)
	if len(table.T) != 2 {
		t.Errorf("got %d rows, want the 2 of before", len(table.T))
	}
}

func TestSeriesStayWithinTheirBounds(t *testing.T) {
	wide := make([]string, 1000)
	var old, young series
	for i := range int64(3 * blockRows * 10) {
		row := make([]float64, len(wide))
		old.add(i, 1, wide, row)
		if i > blockRows {
			young.add(i, 1, wide[:10], row[:10])
		}

		trimSeries([]*series{&old, &young}, i)
	}

	n := old.size() + young.size()
	if n > keptValues+blockRows*len(wide) {
		t.Errorf("kept %d values, want at most about %d", n, keptValues)
	}

	if old.blocks[len(old.blocks)-1].last() != 3*blockRows*10-1 {
		t.Error("the youngest row is gone")
	}

	rows(&old, wide, keptNs*3)
	trimSeries([]*series{&old, &young}, keptNs*3)
	if len(young.blocks) != 0 || len(old.blocks) != 1 {
		t.Errorf("after %v ns: got %d and %d blocks, want what is young", int64(keptNs*2), len(young.blocks),
			len(old.blocks))
	}
}
