package record

import (
	"encoding/json"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// Table holds series with a common time axis. The column V[i] has the name Names[i]. It has one value per
// entry of T; a missing value is NaN. The name of a column is the stem of a metric or "<label>/<stem>", such
// as "cpu0/softirq_ns" or "wan/rx_packets".
type Table struct {
	Names []string
	T     []int64 // controller's CLOCK_MONOTONIC in ns
	V     [][]float64
}

// NewTable returns an empty table with the named columns.
func NewTable(names ...string) *Table { return &Table{Names: names, V: make([][]float64, len(names))} }

// Append adds one row. It panics if the number of values differs from the number of columns.
func (t *Table) Append(at int64, values ...float64) {
	if len(values) != len(t.Names) {
		panic("record: wrong number of values for table")
	}

	t.T = append(t.T, at)
	for i, v := range values {
		t.V[i] = append(t.V[i], v)
	}
}

// Column returns the values of a column, or nil if the table does not have it.
func (t *Table) Column(name string) []float64 {
	if t == nil {
		return nil
	}

	i := slices.Index(t.Names, name)
	if i >= 0 {
		return t.V[i]
	}

	return nil
}

// Shift adds d to all times, which converts them to another clock.
func (t *Table) Shift(d int64) {
	if t == nil {
		return
	}

	for i := range t.T {
		t.T[i] += d
	}
}

// MarshalJSON encodes the binary form of the table in base64, because JSON has no NaN.
func (t *Table) MarshalJSON() ([]byte, error) {
	b, err := t.AppendBinary(nil)
	if err != nil {
		return nil, err
	}
	return json.Marshal(b)
}

// UnmarshalJSON decodes the output of MarshalJSON.
func (t *Table) UnmarshalJSON(data []byte) error {
	var b []byte
	if err := json.Unmarshal(data, &b); err != nil {
		return err
	}

	if err := t.UnmarshalBinary(b); err != nil {
		return err
	}

	for i, n := range t.Names { // names come from a node, and base64 hides them from text filters
		t.Names[i] = check.Plain(n)
	}

	return nil
}
