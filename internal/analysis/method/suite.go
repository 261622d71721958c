package method

import (
	"math"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// LatencyShares returns the shares of the measured rate at which latency is measured. FD.io CSIT uses 10, 50
// and 90 %, and RFC 2544 requires the rate itself.
func LatencyShares() []float64 { return []float64{0.1, 0.5, 0.9, 1} }

// LossStep is the share of the maximum load by which the load of the frame loss test decreases from trial to
// trial (RFC 2544, section 26.3, allows at most 10 %).
const LossStep = 1.0 / lossSteps

const lossSteps = 10

// Latency returns the next trial of RFC 2544's latency test (section 26.2), and false if the test has ended.
// Each repetition consists of trials at all LatencyShares of the rate.
func Latency(rate float64, duration time.Duration, repeats int, history []Trial) (record.TrialInput, bool) {
	shares := LatencyShares()
	n := len(history)
	if n >= repeats*len(shares) {
		return record.TrialInput{}, false
	}

	return record.TrialInput{Load: rate * shares[n%len(shares)], Duration: duration}, true
}

// FrameLoss returns the next trial of RFC 2544's frame loss test (section 26.3), and false if the test has
// ended. Each repetition starts at the maximum load and decreases it by LossStep until two consecutive trials
// have no loss.
func FrameLoss(greatest float64, duration time.Duration, repeats int, history []Trial) (record.TrialInput,
	bool) {
	step := 0
	clean := 0
	for _, t := range history {
		if clean = clean + 1; t.Loss > 0 {
			clean = 0
		}

		step++
		if clean == 2 || step == lossSteps {
			repeats--
			step = 0
			clean = 0
		}
	}

	if repeats <= 0 {
		return record.TrialInput{}, false
	}

	return record.TrialInput{Load: greatest * (1 - float64(step)*LossStep), Duration: duration}, true
}

// The search for the longest burst without loss ends when the ratio of the upper to the lower bound is at
// most burstWidth. The lower bound is shortestBurst until a burst passes without loss.
const (
	shortestBurst = time.Millisecond
	burstWidth    = 1.1
)

// BackToBack returns the next burst of RFC 2544's back-to-back test (section 26.4, with RFC 9004), and false
// if the test has ended. It bisects the duration of bursts at the maximum load, from the longest down.
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

// Burst holds the result of one repetition: the trial with the longest burst without loss, and whether a
// longer burst lost frames.
type Burst struct {
	Index   int // index of the trial in the history; -1 if every burst lost frames
	Limited bool
}

// Bursts returns the results of the complete repetitions, and the trials of the incomplete one.
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

// burstBounds returns the longest burst without loss (at least shortestBurst) and the shortest burst with
// loss.
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
