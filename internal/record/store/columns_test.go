package store

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Every bit comes back, whatever a column holds.
func TestSeries(t *testing.T) {
	nan := math.NaN()
	columns := map[string][]float64{
		"zeros": {0, 0, 0, 0}, "minus zero": {0, math.Copysign(0, -1), 0, 0}, "one fraction": {1, 2, 2.5, 4},
		"counter": {1e15, 1e15 + 7, 1e15 + 7, 1e15 + 900}, "ticks": {3e7, 4e7, 4e7, 9e7},
		"none": {nan, nan, nan, nan},
		"gaps": {nan, 5, nan, -7}, "same fraction": {.1, .1, .1, .1}, "huge": {1e300, math.Inf(1), -1, 0},
		"beyond whole": {1 << 53, 1<<53 + 2, 1<<60 + 1<<20, 1}, "edge": {-1 << 53, 1 << 53, -1 << 53, 1 << 53},
		"down": {4, 3, 2, 1},
	}
	parts := []part{{path: "idle", kind: kindLatency, latency: &record.Latency{
		RTT: []int64{5, -1, math.MaxInt64}, UserRTT: []int64{6, -1, math.MinInt64},
		Late: []int64{1, 2, 3}, SentAt: []int64{10, 20, 30}}},
		{path: rawPath, kind: kindRaw, body: []byte("as received")},
		{path: "e", kind: kindTable, table: &record.Table{Names: []string{"empty"}, V: [][]float64{nil}}}}
	for name, v := range columns {
		parts = append(parts, part{path: name, kind: kindTable, table: &record.Table{
			Names: []string{name, "b"}, T: []int64{7, math.MaxInt64, math.MinInt64, 9},
			V: [][]float64{v, {1, 2, 3, 4}}}})
	}
	b, err := appendSeries(nil, parts)
	must(t, err)
	got, err := readSeries(b)
	must(t, err)
	bits := cmp.Comparer(func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) })
	if d := cmp.Diff(got, parts, cmp.AllowUnexported(part{}), cmpopts.EquateEmpty(), bits); d != "" {
		t.Errorf("series differ (-got +want):\n%s", d)
	}
	for n := range b {
		if _, err := readSeries(b[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes were taken for a series", n, len(b))
		}
	}
}

// Damage is refused or read as something that can be stored again; nothing panics or exhausts memory. No fuzz
// target, because the counters of SQLite's code make each of its executions take a second.
func TestDamagedSeries(t *testing.T) {
	_, parts := split(sampleTrial("r", 1))
	whole, err := appendSeries(nil, parts)
	must(t, err)
	r := rand.New(rand.NewPCG(18, 2))
	for range 20000 {
		b := slices.Clone(whole)
		for range 1 + r.IntN(4) {
			b[r.IntN(len(b))] = byte(r.IntN(256))
		}
		parts, err := readSeries(b)
		if err != nil {
			continue
		}
		if _, err := appendSeries(nil, parts); err != nil {
			t.Fatal(err)
		}
	}
}
