package traffic

import "time"

// Pace determines how many packets are due, and when. Deadlines are absolute. A late wake-up is followed
// by short bursts until it is compensated, up to MaxDebt. Older packets are dropped and counted as unsent.
type Pace struct {
	perNs   float64 // packets per ns
	burst   int64   // packets per deadline
	start   int64
	taken   int64 // packets sent or dropped since start
	most    int64 // maximum number of packets due at once
	Forever bool
}

const (
	// burstTime is the shortest time to sleep for. At higher rates, UDP GSO batches of up to MaxBurst packets
	// are sent and, if that is not enough, the thread spins.
	burstTime = 100 * time.Microsecond
	MaxBurst  = 8
	MaxDebt   = 10 * time.Millisecond
)

// NewPace returns the pace for a payload rate in bit/s and a mean payload per packet in bytes. A rate of 0
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

// Due returns the number of packets to send now, or 0 and the time to call it again.
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

// Most returns the maximum number of packets due at once since its previous call. They were sent back to
// back. After a late wake-up, this is far more than one burst.
func (p *Pace) Most() int64 {
	most := p.most
	p.most = 0
	return most
}

// sendBatchMax is larger than any batch.
const sendBatchMax = 1 << 16

// Took counts n sent packets.
func (p *Pace) Took(n int) { p.taken += int64(n) }

// Unsent returns the number of packets that the rate requires in ns nanoseconds, minus those sent.
func (p *Pace) Unsent(sent, ns int64) int64 {
	if p.Forever {
		return 0
	}
	return max(0, int64(p.perNs*float64(ns))-sent)
}
