package stream

import (
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// The send time in a datagram is the low bits of its sender's clock in ticks of 4 ns, so that delays can
// differ by up to ±8.6 s. The clocks of the two ends need not agree, because only the variation is
// reported.
const tickBits = 2

// sendTick returns the send time for a datagram.
func sendTick(realtime int64) uint32 { return uint32(realtime >> tickBits) }

// delays is the distribution of the one-way delays of a flow, relative to that of the first packet.
// Buckets are 64 ns wide near the first delay, and a sixteenth of the distance farther away.
type delays struct {
	first  uint32 // difference of ticks of the first packet
	has    bool
	lowest int64 // ns, relative to the first packet
	above  traffic.Buckets
	below  traffic.Buckets
}

// delayOctave is log2 of the number of buckets per doubling, see traffic.BucketOf.
const delayOctave = 4

// see records a packet: the tick when it was sent, and the time of its arrival.
func (d *delays) see(sent uint32, received int64) {
	difference := sendTick(received) - sent
	if !d.has {
		d.first, d.has = difference, true
	}

	v := int64(int32(difference-d.first)) << tickBits
	d.lowest = min(d.lowest, v)
	if v < 0 {
		d.below.See(-v, delayOctave)
	} else {
		d.above.See(v, delayOctave)
	}
}

// variation returns the distribution above the minimum delay, or nil if no packet was recorded.
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
		add(-traffic.BucketEdge(i+1, delayOctave), d.below[i])
	}

	for i, n := range d.above {
		add(traffic.BucketEdge(i, delayOctave), n)
	}

	return out
}
