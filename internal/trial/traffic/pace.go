package traffic

import "time"

// Pace determines when how many packets are due. Deadlines are absolute, so that a late wake-up is
// compensated by short bursts, up to MaxDebt; older packets are abandoned and counted as unsent.
type Pace struct {
	perNs   float64 // packets per nanosecond; 0 = full rate
	burst   int64   // packets per deadline
	start   int64
	taken   int64 // sent or abandoned since start
	most    int64 // packets that were due at once
	Forever bool
}

const (
	// burstTime is the shortest time worth sleeping for; faster rates send UDP GSO batches of up to
	// MaxBurst packets, and spin if that is not enough.
	burstTime = 100 * time.Microsecond
	MaxBurst  = 8
	MaxDebt   = 10 * time.Millisecond
)

// NewPace paces a bit rate of packets with a given mean payload in bytes; 0 is full rate.
func NewPace(bps, payload float64) Pace {
	if bps <= 0 {
		return Pace{Forever: true}
	}

	p := Pace{perNs: bps / 8 / payload / 1e9}
	p.burst = min(max(int64(p.perNs*float64(burstTime)), 1), MaxBurst)
	return p
}

func (p *Pace) Begin(now int64) { p.start, p.taken = now, 0 }

// Due returns how many packets to send now, or 0 and when to ask again.
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

// Most returns the largest number of packets that were due at once since its previous call, and were thus
// sent back to back: after a late wake-up that is far more than one burst.
func (p *Pace) Most() int64 {
	most := p.most
	p.most = 0
	return most
}

// sendBatchMax is larger than any batch.
const sendBatchMax = 1 << 16

// Took counts packets that were sent.
func (p *Pace) Took(n int) { p.taken += int64(n) }

// Unsent returns how many more packets the rate required within ns than were sent.
func (p *Pace) Unsent(sent, ns int64) int64 {
	if p.Forever {
		return 0
	}
	return max(0, int64(p.perNs*float64(ns))-sent)
}
