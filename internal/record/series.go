package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
)

// Split returns a copy of the trial without its series, and the encoded series (see docs/reference/store.md).
// It does not modify the trial itself.
func (t Trial) Split() (bare Trial, series []byte, err error) {
	bare = t.Apart()
	tables := bare.Tables()
	for _, path := range slices.Sorted(maps.Keys(tables)) {
		table := tables[path]
		if *table == nil {
			continue
		}

		series, err = (*table).AppendBinary(appendText(series, path))
		if err != nil {
			return Trial{}, nil, fmt.Errorf("%s: %w", path, err)
		}

		*table = nil
	}

	latencies := bare.latencies()
	for _, path := range slices.Sorted(maps.Keys(latencies)) {
		series = appendText(series, path)
		for _, a := range latencies[path].arrays() {
			series = appendWhole(series, a.above())
		}

		for _, a := range latencies[path].arrays() {
			*a.values = nil
		}
	}

	return bare, series, nil
}

// Join restores the series that Split encoded. It returns an error if the trial has no field for a series.
func (t *Trial) Join(series []byte) error {
	tables := t.Tables()
	latencies := t.latencies()
	r := reader{rest: series}
	for len(r.rest) > 0 {
		path := r.text()
		table := tables[path]
		latency := latencies[path]
		switch {
		case r.failed:
		case table != nil:
			*table = r.table()
		case latency != nil:
			for _, a := range latency.arrays() {
				*a.values = r.whole()
				a.raise()
			}
		default:
			return fmt.Errorf("%s: a series without a place in the trial", path)
		}
	}

	if r.failed {
		return errSeries
	}

	return nil
}

// array holds a series of a latency measurement. If base has the same length as values, the differences from
// base are stored, because they take less space.
type array struct {
	values, base *[]int64
}

func (l *Latency) arrays() []array {
	none := new([]int64)
	return []array{{&l.RTT, none}, {&l.UserRTT, &l.RTT}, {&l.Late, none}, {&l.SentAt, &l.Late},
		{&l.EchoNs, none}}
}

func (a array) above() []int64 {
	if len(*a.values) != len(*a.base) {
		return *a.values
	}

	above := slices.Clone(*a.values)
	for i, base := range *a.base {
		above[i] -= base
	}

	return above
}

// raise reverses above.
func (a array) raise() {
	if len(*a.values) != len(*a.base) {
		return
	}

	for i, base := range *a.base {
		(*a.values)[i] += base
	}
}

var errSeries = errors.New("damaged series")

// Encodings of a column.
const (
	columnDoubles = iota
	columnWhole   // integers, in which the value gap means NaN
)

// gap is stored in place of NaN. It is outside the range of integers that a float64 represents exactly.
const gap = math.MinInt64

// AppendBinary appends the encoded table to b.
func (t *Table) AppendBinary(b []byte) ([]byte, error) {
	b = binary.AppendUvarint(b, uint64(len(t.Names)))
	for _, name := range t.Names {
		b = appendText(b, name)
	}

	b = appendWhole(b, t.T)
	for i, column := range t.V {
		if len(column) != len(t.T) {
			return nil, fmt.Errorf("encode table column %s: %d values for %d times", t.Names[i], len(column),
				len(t.T))
		}

		b = appendColumn(b, column)
	}

	return b, nil
}

// UnmarshalBinary decodes the output of AppendBinary. If it returns an error, t is unchanged.
func (t *Table) UnmarshalBinary(b []byte) error {
	r := reader{rest: b}
	table := r.table()
	if r.failed || len(r.rest) > 0 {
		return errSeries
	}

	*t = *table
	return nil
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// appendWhole appends the number of values, then the difference of each value from the previous one.
func appendWhole(b []byte, values []int64) []byte {
	b = binary.AppendUvarint(b, uint64(len(values)))
	last := int64(0)
	for _, v := range values {
		b = binary.AppendVarint(b, v-last)
		last = v
	}

	return b
}

func appendColumn(b []byte, column []float64) []byte {
	if values, ok := wholeNumbers(column); ok {
		return appendWhole(append(b, columnWhole), values)
	}

	b = append(b, columnDoubles)
	for _, v := range column {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}

	return b
}

// wholeNumbers converts a column to integers. ok is false if the conversion would change any bit of a
// value.
func wholeNumbers(column []float64) (values []int64, ok bool) {
	values = make([]int64, len(column))
	for i, v := range column {
		bits := math.Float64bits(v)
		switch {
		case bits == math.Float64bits(math.NaN()):
			values[i] = gap
		case v != math.Trunc(v) || math.Abs(v) > 1<<53 || bits == 1<<63: // 1<<63 is minus zero
			return nil, false
		default:
			values[i] = int64(v)
		}
	}
	return values, true
}

// reader decodes series. After the first error, its methods return only zero values.
type reader struct {
	rest   []byte
	failed bool
}

func (r *reader) fail() {
	r.failed, r.rest = true, nil
}

func (r *reader) take(n int) []byte {
	if n > len(r.rest) {
		r.fail()
		return nil
	}

	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

// count decodes the number of items that follow. It fails if fewer bytes than items are left, so that
// damaged data cannot exhaust memory.
func (r *reader) count() int {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || v > uint64(len(r.rest)-n) {
		r.fail()
		return 0
	}

	r.rest = r.rest[n:]
	return int(v)
}

func (r *reader) text() string { return string(r.take(r.count())) }

func (r *reader) whole() []int64 {
	count := r.count()
	if count == 0 {
		return nil
	}

	values := make([]int64, count)
	last := int64(0)
	for i := range values {
		d, n := binary.Varint(r.rest)
		if n <= 0 {
			r.fail()
			return nil
		}

		r.rest = r.rest[n:]
		last += d
		values[i] = last
	}

	return values
}

func (r *reader) table() *Table {
	t := &Table{Names: make([]string, r.count())}
	for i := range t.Names {
		t.Names[i] = r.text()
	}

	t.T = r.whole()
	t.V = make([][]float64, len(t.Names))
	for i := range t.V {
		t.V[i] = r.column(len(t.T))
	}

	return t
}

func (r *reader) column(rows int) []float64 {
	form := r.take(1)
	if r.failed {
		return nil
	}

	switch form[0] {
	case columnDoubles:
		b := r.take(8 * rows)
		column := make([]float64, len(b)/8)
		for i := range column {
			column[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
		}

		return column
	case columnWhole:
		values := r.whole()
		if len(values) != rows {
			break
		}

		column := make([]float64, rows)
		for i, v := range values {
			column[i] = float64(v)
			if v == gap {
				column[i] = math.NaN()
			}
		}

		return column
	}

	r.fail()
	return nil
}
