package traffic

import (
	"math/bits"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// gaps counts runs of lost numbers by their length. Lengths up to exactGap are kept as they are; longer ones
// by their first seven binary digits, with the sum of their numbers, so that nothing is lost of the total.
type gaps map[int64]record.Gap

const exactGap = 1 << 10

func (g *gaps) add(length int64) {
	if *g == nil {
		*g = gaps{}
	}
	at := length
	if length > exactGap {
		drop := bits.Len64(uint64(length)) - 7
		at = length >> drop << drop
	}
	b := (*g)[at]
	(*g)[at] = record.Gap{Length: at, Gaps: b.Gaps + 1, Packets: b.Packets + length}
}

// List gives the lengths in order.
func (g gaps) List() []record.Gap {
	var out []record.Gap
	for _, b := range g {
		out = append(out, b)
	}
	slices.SortFunc(out, func(a, b record.Gap) int { return int(a.Length - b.Length) })
	return out
}
