package watch

import (
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Limits of the samples that a watch keeps: 20 minutes, and for all probes together as much memory as a
// small router can spare.
const (
	keptNs     = 20 * 60 * 1e9
	keptValues = 2 << 20 // 16 MiB of float64
	blockRows  = 128
)

// block holds consecutive rows with the same columns.
type block struct {
	columns []string
	at      []int64
	cost    []int64 // CPU time of each read, in ns
	values  []float64
}

func (b *block) first() int64 { return b.at[0] }
func (b *block) last() int64  { return b.at[len(b.at)-1] }

// series holds the samples of a probe, oldest first. Adding a row allocates memory only if it starts a new
// block.
type series struct{ blocks []block }

// add copies a row to the series. Lists of columns are compared by identity, because a sampler creates a
// new list when its columns change.
func (s *series) add(at, cost int64, columns []string, row []float64) {
	b := s.current(columns)
	b.at = append(b.at, at)
	b.cost = append(b.cost, cost)
	b.values = append(b.values, row...)
}

func (s *series) current(columns []string) *block {
	n := len(s.blocks)
	if n > 0 {
		b := &s.blocks[n-1]
		if len(b.at) < blockRows && sameList(b.columns, columns) {
			return b
		}
	}

	s.blocks = append(s.blocks, block{
		columns: columns,
		at:      make([]int64, 0, blockRows),
		cost:    make([]int64, 0, blockRows),
		values:  make([]float64, 0, blockRows*len(columns)),
	})
	return &s.blocks[len(s.blocks)-1]
}

func sameList(a, b []string) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// forget drops the blocks whose last row is before t.
func (s *series) forget(t int64) {
	s.blocks = slices.DeleteFunc(s.blocks, func(b block) bool { return b.last() < t })
}

// size returns the number of values for which memory is allocated.
func (s *series) size() int {
	n := 0
	for _, b := range s.blocks {
		n += cap(b.values)
	}
	return n
}

// trimSeries drops the oldest blocks until all series together are within the limits.
func trimSeries(all []*series, now int64) {
	total := 0
	for _, s := range all {
		s.forget(now - keptNs)
		total += s.size()
	}

	for total > keptValues {
		var oldest *series
		for _, s := range all {
			if len(s.blocks) > 1 && (oldest == nil || s.blocks[0].first() < oldest.blocks[0].first()) {
				oldest = s
			}
		}

		if oldest == nil {
			return
		}

		total -= cap(oldest.blocks[0].values)
		oldest.blocks = slices.Delete(oldest.blocks, 0, 1)
	}
}

// snapshot returns the rows so far. The result can be read while sampling continues, because rows are only
// ever appended.
func (s *series) snapshot() series { return series{slices.Clone(s.blocks)} }

// cut copies the rows between from and to, and the nearest rows before and after, so that the whole period
// is covered. Values of columns that a row lacks are NaN. The cost excludes the first row, because n rows
// span n-1 intervals.
func (s *series) cut(from, to int64) (*record.Table, record.Cost) {
	from, to = s.widen(from, to)
	var columns []string
	index := map[string]int{}
	for _, b := range s.blocks {
		if b.last() < from || b.first() > to {
			continue
		}

		for _, c := range b.columns {
			if _, ok := index[c]; !ok {
				index[c] = len(columns)
				columns = append(columns, c)
			}
		}
	}

	t := record.NewTable(columns...)
	cost := record.Cost{}
	var each []int64
	row := make([]float64, len(columns))
	for _, b := range s.blocks {
		for r, at := range b.at {
			if at < from || at > to {
				continue
			}

			for i := range row {
				row[i] = math.NaN()
			}

			for j, c := range b.columns {
				row[index[c]] = b.values[r*len(b.columns)+j]
			}

			if len(t.T) > 0 {
				cost.Reads++
				cost.CPUNs += b.cost[r]
				each = append(each, b.cost[r])
			}

			t.Append(at, row...)
		}
	}

	if n := len(t.T); n > 0 {
		cost.OverNs = t.T[n-1] - t.T[0]
	}

	if n := len(each); n > 0 {
		slices.Sort(each)
		cost.MedianNs = each[n/2]
	}

	return t, cost
}

// widen extends the range to the nearest rows outside it.
func (s *series) widen(from, to int64) (int64, int64) {
	before := from
	after := to
	found := false
	for _, b := range s.blocks {
		for _, at := range b.at {
			if at < from {
				before = at
			}

			if at > to && !found {
				after, found = at, true
			}
		}
	}

	return before, after
}
