package bpf

import "math"

// A burst is what is sent without reading the clock.
const (
	maxBurst   = 8       // of a paced load: so short a burst no router notices
	burstRate  = 100_000 // per second: below, each frame is due by itself
	stampEvery = 61      // a prime, so that every place in a burst and every flow has its turn
	stampRate  = 100_000 // below, every frame has its time
	maxDebt    = 15_000_000
	flatBatch  = 64
)

// pace is a rate as the program counts it.
type pace struct {
	gap, debt    uint64 // ns
	part         uint32 // of a nanosecond
	burst, stamp uint32
	batch        uint32 // frames that the kernel makes together
}

func paceOf(pps float64) pace {
	if pps <= 0 {
		return pace{burst: stampEvery, stamp: stampEvery, batch: flatBatch}
	}
	p := pace{debt: maxDebt, stamp: stampEvery}
	p.burst = uint32(min(max(pps/burstRate, 1), maxBurst))
	p.batch = p.burst
	gap := float64(p.burst) / pps * 1e9
	whole := math.Floor(gap)
	p.gap, p.part = uint64(whole), uint32((gap-whole)*(1<<32))
	if pps <= stampRate {
		p.stamp = 1
	}
	return p
}

// BurstOf is how many frames of a load of that rate, of one thread, follow each other without reading the
// clock, and every how many have a time.
func BurstOf(pps float64) (frames, stamped int) {
	p := paceOf(pps)
	return int(p.burst), int(p.stamp)
}
