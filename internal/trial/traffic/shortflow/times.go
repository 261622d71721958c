package shortflow

import (
	"math/bits"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// times is a distribution of durations: buckets of 64 ns, and from 4096 ns on sixty-four to each doubling.
type times struct{ counts []int64 }

const (
	timesFinest = 6 // log2 of the finest bucket in ns
	timesOctave = 6 // log2 of the buckets per doubling
	timesLinear = timesFinest + timesOctave
)

func (t *times) see(ns int64) {
	i := timesBucket(max(ns, 0))
	for len(t.counts) <= i {
		t.counts = append(t.counts, 0)
	}
	t.counts[i]++
}

func (t *times) add(o *times) {
	for len(t.counts) < len(o.counts) {
		t.counts = append(t.counts, 0)
	}
	for i, n := range o.counts {
		t.counts[i] += n
	}
}

func timesBucket(ns int64) int {
	if ns < 1<<timesLinear {
		return int(ns >> timesFinest)
	}
	e := bits.Len64(uint64(ns)) - 1
	return (e-timesLinear+1)<<timesOctave + int(ns>>(e-timesOctave))&(1<<timesOctave-1)
}

// timesEdge is the least duration of a bucket.
func timesEdge(i int) int64 {
	if i < 1<<timesOctave {
		return int64(i) << timesFinest
	}
	e := i>>timesOctave - 1 + timesLinear
	return (1<<timesOctave | int64(i&(1<<timesOctave-1))) << (e - timesOctave)
}

func (t *times) list() []record.TimeCount {
	out := []record.TimeCount{}
	for i, n := range t.counts {
		if n > 0 {
			out = append(out, record.TimeCount{FromNs: timesEdge(i), Flows: n})
		}
	}
	return out
}
