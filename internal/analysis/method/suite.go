package method

import (
	"math"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// LatencyShares returns the shares of the found rate at which latency is measured, the rate itself last: 10,
// 50 and 90 % are those of FD.io CSIT, and RFC 2544 requires the rate itself.
func LatencyShares() []float64 { return []float64{0.1, 0.5, 0.9, 1} }

// LossStep is the share of the greatest load by which the frame loss test descends from trial to trial (RFC
// 2544, section 26.3: 10 % or less).
const LossStep = 1.0 / lossSteps

const lossSteps = 10

// Latency returns the next trial of RFC 2544's latency test (section 26.2) at the shares of a rate: each
// repeat goes through all of them.
func Latency(rate float64, duration time.Duration, repeats int, history []Trial) (record.TrialInput, bool) {
	shares := LatencyShares()
	n := len(history)
	if n >= repeats*len(shares) {
		return record.TrialInput{}, false
	}

	return record.TrialInput{Load: rate * shares[n%len(shares)], Duration: duration}, true
}

// FrameLoss returns the next trial of RFC 2544's frame loss test (section 26.3): from the greatest load down
// in steps, until two in a row have lost nothing. Each repeat starts over.
func FrameLoss(greatest float64, duration time.Duration, repeats int, history []Trial) (record.TrialInput,
	bool) {
	step, clean := 0, 0
	for _, t := range history {
		if clean = clean + 1; t.Loss > 0 {
			clean = 0
		}

		step++
		if clean == 2 || step == lossSteps {
			repeats--
			step, clean = 0, 0
		}
	}

	if repeats <= 0 {
		return record.TrialInput{}, false
	}

	return record.TrialInput{Load: greatest * (1 - float64(step)*LossStep), Duration: duration}, true
}

// Bursts are searched down to shortestBurst, until a burst forwarded whole and one that was not differ by
// burstWidth.
const (
	shortestBurst = time.Millisecond
	burstWidth    = 1.1
)

// BackToBack returns the next burst of RFC 2544's back-to-back test (section 26.4, with RFC 9004): frames
// at the greatest load for a time that is halved in on, from the longest down.
func BackToBack(greatest float64, longest time.Duration, repeats int, history []Trial) (record.TrialInput,
	bool) {
	bursts, rest := Bursts(longest, history)
	if len(bursts) >= repeats {
		return record.TrialInput{}, false
	}

	next := longest
	low, high, begun := burstBounds(rest)
	if begun {
		next = time.Duration(math.Sqrt(float64(low) * float64(high)))
	}

	return record.TrialInput{Load: greatest, Duration: next}, true
}

// Burst holds the result of one repeat: the trial with the longest burst that was forwarded whole, and
// whether a longer one failed.
type Burst struct {
	Index   int // of the trial in the history; -1 if no burst was forwarded whole
	Limited bool
}

// Bursts reads the completed repeats, and returns the trials of an incomplete one.
func Bursts(longest time.Duration, history []Trial) (ended []Burst, rest []Trial) {
	from := 0
	for i := range history {
		part := history[from : i+1]
		whole := -1
		for k, t := range part {
			if t.Loss == 0 && (whole < 0 || t.Duration >= part[whole].Duration) {
				whole = k
			}
		}

		low, high, begun := burstBounds(part)
		full := whole >= 0 && part[whole].Duration >= longest
		if !full && (!begun || float64(high) > burstWidth*float64(low)) {
			continue
		}

		b := Burst{Index: -1, Limited: !full}
		if whole >= 0 {
			b.Index = from + whole
		}

		ended = append(ended, b)
		from = i + 1
	}
	return ended, history[from:]
}

// burstBounds returns the longest burst that was forwarded whole, or the shortest possible, and the shortest
// that was not.
func burstBounds(trials []Trial) (low, high time.Duration, begun bool) {
	low = shortestBurst
	for _, t := range trials {
		if t.Loss > 0 && (!begun || t.Duration < high) {
			high = t.Duration
			begun = true
		}
	}

	for _, t := range trials {
		if t.Loss == 0 && t.Duration > low && (!begun || t.Duration < high) {
			low = t.Duration
		}
	}

	return low, high, begun
}
