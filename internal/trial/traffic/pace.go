package traffic

import "time"

// pace says when how many packets are due. Deadlines are absolute, so that a late wake-up is made good, in
// short trains, up to maxDebt; what is older is given up and counted as unsent.
type pace struct {
	perNs   float64 // packets per nanosecond; 0 = flat out
	train   int64   // packets per deadline
	start   int64
	taken   int64 // sent or given up since start
	forever bool
}

const (
	// trainTime is the shortest time worth sleeping for; faster rates send trains of up to maxTrain
	// packets, and spin if that is not enough.
	trainTime = 100 * time.Microsecond
	maxTrain  = 8
	maxDebt   = 10 * time.Millisecond
)

// newPace is for bits per second of packets with so many bytes of payload in the mean; 0 is flat out.
func newPace(bps, payload float64) pace {
	if bps <= 0 {
		return pace{forever: true}
	}
	p := pace{perNs: bps / 8 / payload / 1e9}
	p.train = min(max(int64(p.perNs*float64(trainTime)), 1), maxTrain)
	return p
}

func (p *pace) begin(now int64) { p.start, p.taken = now, 0 }

// due returns how many packets to send now, or 0 and when to ask again.
func (p *pace) due(now int64) (n int, wake int64) {
	if p.forever {
		return sendBatchMax, 0
	}
	ready := int64(float64(now-p.start)*p.perNs) - p.taken
	if debt := int64(p.perNs * float64(maxDebt)); ready > max(debt, p.train) {
		p.taken += ready - max(debt, p.train)
		ready = max(debt, p.train)
	}
	if ready >= p.train {
		return int(min(ready, maxTrain)), 0
	}
	return 0, p.start + int64(float64(p.taken+p.train)/p.perNs) + 1
}

// sendBatchMax is more than any batch holds.
const sendBatchMax = 1 << 16

// took enters packets that were sent.
func (p *pace) took(n int) { p.taken += int64(n) }

// unsent is how many packets the rate called for within ns beyond those sent.
func (p *pace) unsent(sent, ns int64) int64 {
	if p.forever {
		return 0
	}
	return max(0, int64(p.perNs*float64(ns))-sent)
}
