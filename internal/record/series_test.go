package record

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// seriesTrial holds a table of each kind of column, and arrays of latency.
func seriesTrial() Trial {
	nan := math.NaN()
	columns := map[string][]float64{
		"zeros": {0, 0, 0, 0}, "minus zero": {0, math.Copysign(0, -1), 0, 0}, "one fraction": {1, 2, 2.5, 4},
		"counter": {1e15, 1e15 + 7, 1e15 + 7, 1e15 + 900}, "ticks": {3e7, 4e7, 4e7, 9e7},
		"none": {nan, nan, nan, nan}, "another NaN": {math.Float64frombits(math.Float64bits(nan) + 1), 1, 2, 3},
		"gaps": {nan, 5, nan, -7}, "same fraction": {.1, .1, .1, .1}, "huge": {1e300, math.Inf(1), -1, 0},
		"beyond whole": {1 << 53, 1<<53 + 2, 1<<60 + 1<<20, 1}, "edge": {-1 << 53, 1 << 53, -1 << 53, 1 << 53},
		"edge and gap": {-1 << 53, nan, 1 << 53, nan}, "down": {4, 3, 2, 1},
	}
	t := Trial{
		Idle: &Latency{
			RTT:     []int64{5, -1, math.MaxInt64},
			UserRTT: []int64{6, -1, math.MinInt64},
			Late:    []int64{1, 2, 3},
			SentAt:  []int64{10, 20, 30},
		},
		Loaded: &Latency{RTT: []int64{5}, SentAt: []int64{10, 20, 30}, EchoNs: []int64{7}},
		Traffic: &Traffic{Flows: []Flow{{
			Sent:     &Table{Names: []string{"empty"}, V: [][]float64{nil}},
			Received: &Table{T: []int64{1, 2}},
		}}},
	}
	for name, v := range columns {
		table := &Table{
			Names: []string{name, "b"},
			T:     []int64{7, math.MaxInt64, math.MinInt64, 9},
			V:     [][]float64{v, {1, 2, 3, 4}},
		}
		t.Traffic.Flows = append(t.Traffic.Flows, Flow{Sent: table})
	}

	return t
}

// Every bit comes back, whatever a column holds.
func TestSeries(t *testing.T) {
	trial := seriesTrial()
	got, series, err := trial.Split()
	must(t, err)
	must(t, got.Join(series))
	bits := cmp.Comparer(func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) })
	d := cmp.Diff(got, trial, cmpopts.EquateEmpty(), bits)
	if d != "" {
		t.Errorf("series differ (-got +want):\n%s", d)
	}

	table := trial.Traffic.Flows[1].Sent
	b, err := table.AppendBinary(nil)
	must(t, err)
	for n := range b {
		if new(Table).UnmarshalBinary(b[:n]) == nil {
			t.Fatalf("the first %d of %d bytes were taken for a table", n, len(b))
		}
	}

	if new(Table).UnmarshalBinary(append(b, 0)) == nil {
		t.Error("a table with a byte behind it was accepted")
	}

	table.V[0] = table.V[0][:3]
	if _, _, err := trial.Split(); err == nil {
		t.Error("a column that is too short was encoded")
	}
}

// Damage is refused or read as something that can be stored again; nothing panics or exhausts memory.
func TestDamagedSeries(t *testing.T) {
	bare, whole, err := seriesTrial().Split()
	must(t, err)
	r := rand.New(rand.NewPCG(18, 2))
	for range 20000 {
		b := slices.Clone(whole)
		for range 1 + r.IntN(4) {
			b[r.IntN(len(b))] = byte(r.IntN(256))
		}

		trial := bare.Apart()
		if trial.Join(b) != nil {
			continue
		}

		if _, _, err := trial.Split(); err != nil {
			t.Fatal(err)
		}
	}

	many := binary.AppendUvarint(appendText(nil, "idle"), 1<<62)
	if err := bare.Join(append(many, bytes.Repeat([]byte{0}, 100)...)); err == nil {
		t.Error("more values than bytes were accepted")
	}
}

// TestSplitTakesEveryTable fills every *Table that the type Trial can hold and demands that none of
// them stays in the JSON: a new field of that type in record must be given a place in tables.
func TestSplitTakesEveryTable(t *testing.T) {
	var trial Trial
	n := fill(reflect.ValueOf(&trial).Elem())
	latencies := trial.latencies()
	for _, l := range latencies {
		for i, a := range l.arrays() {
			*a.values = []int64{int64(i)}
		}
	}

	if n < 4 || len(latencies) != 4 { // two of a hop
		t.Errorf("%d tables and %d measurements of latency", n, len(latencies))
	}

	bare, series, err := trial.Split()
	must(t, err)
	left := count(reflect.ValueOf(bare))
	if left != 0 {
		t.Errorf("%d tables stay in the JSON", left)
	}

	for path, l := range bare.latencies() {
		for _, a := range l.arrays() {
			if len(*a.values) > 0 {
				t.Errorf("arrays of %s stay in the JSON", path)
			}
		}
	}

	kept := count(reflect.ValueOf(trial))
	if kept != n {
		t.Errorf("split changed the trial it was given: %d of %d tables left", kept, n)
	}

	must(t, bare.Join(series))
	d := cmp.Diff(bare, trial, cmpopts.EquateEmpty())
	if d != "" {
		t.Errorf("joined trial differs (-got +want):\n%s", d)
	}

	if err := bare.Join(appendText(nil, "traffic/flows/9/sent")); err == nil {
		t.Error("a series without a place was accepted")
	}
}

var tableType = reflect.TypeFor[*Table]()

// fill makes one of everything, down to the tables, and counts these.
func fill(v reflect.Value) int {
	switch {
	case v.Type() == tableType:
		table := NewTable("a")
		table.Append(1, 2)
		v.Set(reflect.ValueOf(table))
		return 1
	case v.Type() == reflect.TypeFor[time.Time]():
		return 0
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return fill(v.Elem())
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		return fill(v.Index(0))
	case v.Kind() == reflect.Map:
		e := reflect.New(v.Type().Elem()).Elem()
		n := fill(e)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("x").Convert(v.Type().Key()), e)
		return n
	case v.Kind() == reflect.Struct:
		n := 0
		for i := range v.NumField() {
			n += fill(v.Field(i))
		}
		return n
	}
	return 0
}

func count(v reflect.Value) int {
	switch {
	case v.Type() == tableType:
		if v.IsNil() {
			return 0
		}
		return 1
	case v.Type() == reflect.TypeFor[time.Time]():
		return 0
	case v.Kind() == reflect.Pointer && !v.IsNil():
		return count(v.Elem())
	case v.Kind() == reflect.Slice:
		n := 0
		for i := range v.Len() {
			n += count(v.Index(i))
		}
		return n
	case v.Kind() == reflect.Map:
		n := 0
		for _, k := range v.MapKeys() {
			n += count(v.MapIndex(k))
		}
		return n
	case v.Kind() == reflect.Struct:
		n := 0
		for i := range v.NumField() {
			n += count(v.Field(i))
		}
		return n
	}
	return 0
}
