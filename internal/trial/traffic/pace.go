package traffic

import "time"

// Pace determines how many packets are due, and when. Deadlines are absolute. After a late wake-up, short
// bursts follow until the delay is made up. Packets that are overdue by more than MaxDebt are dropped and
// counted as unsent.
type Pace struct {
	perNs   float64 // packets per ns
	burst   int64   // packets per deadline
	start   int64
	taken   int64 // packets sent or dropped since start
	most    int64 // maximum number of packets due at once
	Forever bool
}

const (
	// burstTime is the shortest time for which a sender sleeps. At rates that need shorter times, a thread
	// sends UDP GSO batches of up to MaxBurst packets. If that does not suffice, it spins.
	burstTime = 100 * time.Microsecond
	MaxBurst  = 8
	MaxDebt   = 10 * time.Millisecond
)

// NewPace returns the pace for a payload rate in bit/s and a mean payload per packet in bytes. A bps of 0
// means full rate.
func NewPace(bps, payload float64) Pace {
	if bps <= 0 {
		return Pace{Forever: true}
	}

	p := Pace{perNs: bps / 8 / payload / 1e9}
	p.burst = min(max(int64(p.perNs*float64(burstTime)), 1), MaxBurst)
	return p
}

func (p *Pace) Begin(now int64) { p.start, p.taken = now, 0 }

// Due returns the number of packets to send now. If it is 0, wake is the time at which to call Due again.
func (p *Pace) Due(now int64) (n int, wake int64) {
	if p.Forever {
		return sendBatchMax, 0
	}

	ready := int64(float64(now-p.start)*p.perNs) - p.taken
	debt := int64(p.perNs * float64(MaxDebt))
	if ready > max(debt, p.burst) {
		p.taken += ready - max(debt, p.burst)
		ready = max(debt, p.burst)
	}

	if ready >= p.burst {
		p.most = max(p.most, ready)
		return int(min(ready, MaxBurst)), 0
	}

	return 0, p.start + int64(float64(p.taken+p.burst)/p.perNs) + 1
}

// Most returns the maximum number of packets that were due at once since the previous call of Most. They
// were sent back to back. After a late wake-up, the number is far higher than one burst.
func (p *Pace) Most() int64 {
	most := p.most
	p.most = 0
	return most
}

// sendBatchMax is larger than any batch.
const sendBatchMax = 1 << 16

// Took records that n packets were sent.
func (p *Pace) Took(n int) { p.taken += int64(n) }

// Unsent returns the number of packets that the rate requires in ns nanoseconds, minus the number sent.
func (p *Pace) Unsent(sent, ns int64) int64 {
	if p.Forever {
		return 0
	}
	return max(0, int64(p.perNs*float64(ns))-sent)
}
