package stream

import (
	"math/bits"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// A datagram's send time is the low bits of its sender's clock, in ticks of 4 ns, so that delays within
// ±8.6 s of each other can be told apart. The two ends' clocks need not agree: only the variation is told.
const tickBits = 2

// sendTick is the send time that a datagram carries.
func sendTick(realtime int64) uint32 { return uint32(realtime >> tickBits) }

// delays is the distribution of one flow's one-way delays, relative to the first of them. A bucket is 64 ns
// wide near it, and a sixteenth of its distance further off.
type delays struct {
	first  uint32 // tick difference of the first packet
	has    bool
	lowest int64 // ns, relative to the first
	above  []int64
	below  []int64
}

// Buckets: sixteen of 64 ns, then sixteen per doubling.
const (
	finest     = 6 // log2 of the finest bucket in ns
	perOctave  = 4 // log2 of the buckets per doubling
	firstRange = finest + perOctave
)

// see takes note of a packet sent at a tick and received at a time.
func (d *delays) see(sent uint32, received int64) {
	difference := sendTick(received) - sent
	if !d.has {
		d.first, d.has = difference, true
	}
	v := int64(int32(difference-d.first)) << tickBits
	d.lowest = min(d.lowest, v)
	side := &d.above
	if v < 0 {
		side, v = &d.below, -v
	}
	i := delayBucket(v)
	for len(*side) <= i {
		*side = append(*side, 0)
	}
	(*side)[i]++
}

func delayBucket(ns int64) int {
	if ns < 1<<firstRange {
		return int(ns >> finest)
	}
	e := bits.Len64(uint64(ns)) - 1
	return (e-firstRange+1)<<perOctave + int(ns>>(e-perOctave))&(1<<perOctave-1)
}

// delayEdge is the least delay of a bucket.
func delayEdge(i int) int64 {
	if i < 1<<perOctave {
		return int64(i) << finest
	}
	e := i>>perOctave - 1 + firstRange
	return (1<<perOctave | int64(i&(1<<perOctave-1))) << (e - perOctave)
}

// variation is the distribution above the lowest delay; nil if nothing was seen.
func (d *delays) variation(stamps string) *record.DelayVariation {
	if !d.has {
		return nil
	}
	out := &record.DelayVariation{Stamps: stamps}
	add := func(ns, packets int64) {
		if packets > 0 {
			out.Counts = append(out.Counts, record.DelayCount{AboveNs: max(ns-d.lowest, 0), Packets: packets})
		}
	}
	for i := len(d.below) - 1; i >= 0; i-- {
		add(-delayEdge(i+1), d.below[i])
	}
	for i, n := range d.above {
		add(delayEdge(i), n)
	}
	return out
}
