package stream

import (
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// The send time in a datagram consists of the low bits of the sender's clock in ticks of 4 ns, so that
// delays can differ by up to ±8.6 s. The clocks of the two ends need not agree, because only the variation
// of the delay is reported.
const tickBits = 2

// sendTick returns the send time for a datagram.
func sendTick(realtime int64) uint32 { return uint32(realtime >> tickBits) }

// delays holds the distribution of the one-way delays of a flow, relative to the delay of the first
// packet. Buckets near the first delay are 64 ns wide; farther away, their width is a sixteenth of the
// distance.
type delays struct {
	first  uint32 // difference between the arrival and send ticks of the first packet
	has    bool
	lowest int64 // lowest delay in ns, relative to the first packet
	above  traffic.Buckets
	below  traffic.Buckets
}

// delayOctave is log2 of the number of buckets per doubling of the delay; see traffic.BucketOf.
const delayOctave = 4

// see records the tick at which a packet was sent, and the time at which it was received.
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

// variation returns the distribution of the delays in excess of the minimum, or nil if no packet was
// recorded.
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
