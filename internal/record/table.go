package record

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// Table is a set of series over one time axis. V[i] is the column named Names[i] and has one value per
// entry of T; NaN is "no value here". A column's name is a metric's stem or "<label>/<stem>", such as
// "cpu0/softirq_ns" or "wan/rx_packets".
type Table struct {
	Names []string
	T     []int64 // ns, controller's monotonic clock
	V     [][]float64
}

// NewTable returns an empty table with the given columns.
func NewTable(names ...string) *Table { return &Table{Names: names, V: make([][]float64, len(names))} }

// Append adds one line. It panics if the number of values is wrong.
func (t *Table) Append(at int64, values ...float64) {
	if len(values) != len(t.Names) {
		panic("record: wrong number of values for table")
	}
	t.T = append(t.T, at)
	for i, v := range values {
		t.V[i] = append(t.V[i], v)
	}
}

// Column returns the values of a column, or nil.
func (t *Table) Column(name string) []float64 {
	if t == nil {
		return nil
	}
	if i := slices.Index(t.Names, name); i >= 0 {
		return t.V[i]
	}
	return nil
}

// Shift adds d to every time, to move the table to another clock.
func (t *Table) Shift(d int64) {
	if t == nil {
		return
	}
	for i := range t.T {
		t.T[i] += d
	}
}

var errTable = errors.New("damaged table")

// MarshalBinary encodes the table: counts, names, times, columns; little endian, see docs/reference/store.md.
// Compression is the store's business.
func (t *Table) MarshalBinary() ([]byte, error) {
	b := binary.AppendUvarint(nil, uint64(len(t.Names)))
	b = binary.AppendUvarint(b, uint64(len(t.T)))
	for _, n := range t.Names {
		b = binary.AppendUvarint(b, uint64(len(n)))
		b = append(b, n...)
	}
	last := int64(0)
	for _, at := range t.T {
		b = binary.AppendVarint(b, at-last)
		last = at
	}
	for i, col := range t.V {
		if len(col) != len(t.T) {
			return nil, fmt.Errorf("encode table column %s: %d values for %d times", t.Names[i], len(col),
				len(t.T))
		}
		for _, v := range col {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
		}
	}
	return b, nil
}

// UnmarshalBinary decodes what MarshalBinary wrote; on error t is unchanged.
func (t *Table) UnmarshalBinary(b []byte) error {
	next := func() (uint64, bool) {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return 0, false
		}
		b = b[n:]
		return v, true
	}
	cols, ok1 := next()
	rows, ok2 := next()
	// Each column costs at least one byte and each time one, so the counts are bounded by the input and a
	// damaged one cannot exhaust memory.
	if !ok1 || !ok2 || cols > uint64(len(b)) || rows > uint64(len(b)) {
		return errTable
	}
	u := Table{Names: make([]string, cols), T: make([]int64, rows), V: make([][]float64, cols)}
	for i := range u.Names {
		n, ok := next()
		if !ok || n > uint64(len(b)) {
			return errTable
		}
		u.Names[i] = string(b[:n])
		b = b[n:]
	}
	last := int64(0)
	for i := range u.T {
		d, n := binary.Varint(b)
		if n <= 0 {
			return errTable
		}
		b = b[n:]
		last += d
		u.T[i] = last
	}
	if uint64(len(b))/8 < cols*rows || uint64(len(b)) != cols*rows*8 {
		return errTable
	}
	for i := range u.V {
		u.V[i] = make([]float64, rows)
		for j := range u.V[i] {
			u.V[i][j] = math.Float64frombits(binary.LittleEndian.Uint64(b))
			b = b[8:]
		}
	}
	*t = u
	return nil
}

// MarshalJSON carries the binary form as base64, because JSON has no NaN.
func (t *Table) MarshalJSON() ([]byte, error) {
	b, err := t.MarshalBinary()
	if err != nil {
		return nil, err
	}
	return json.Marshal(b)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (t *Table) UnmarshalJSON(data []byte) error {
	var b []byte
	if err := json.Unmarshal(data, &b); err != nil {
		return err
	}
	if err := t.UnmarshalBinary(b); err != nil {
		return err
	}
	for i, n := range t.Names { // they may be a node's, which base64 has carried past whoever reads text
		t.Names[i] = check.Plain(n)
	}
	return nil
}
