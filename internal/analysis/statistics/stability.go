package statistics

import "math"

// Bins for the evenness of a window. Bins shorter than 200 ms would show the timing of the scheduler and of
// delayed acknowledgements.
const (
	evenBin     = int64(200e6) // ns
	evenBinsMin = 7            // needs a window of 1.5 s
	evenBinsMax = 120
)

// consistencyWords lists the grades of consistency, each with the largest ratio that it includes. Tests
// verify them on simulated series: a steady rate with 2 % noise is "Very good"; CUBIC's sawtooth (down to 70
// %), without a queue that smooths it, is "Good" to "Fair"; Reno's sawtooth (down to 50 %) and a link that
// stalls every few seconds are "Poor".
var consistencyWords = [...]struct {
	word string
	most float64
}{{"Very good", .03}, {"Good", .08}, {"Fair", .18}}

// ConsistencyWord returns the grade of a consistency ratio.
func ConsistencyWord(ratio float64) string {
	for _, w := range consistencyWords {
		if ratio <= w.most {
			return w.word
		}
	}
	return "Poor"
}

// WindowEvenness returns the consistency ratio of a window. This is the mean absolute deviation of the binned
// rates from their linear trend, divided by their mean and multiplied by 1.2533, so that it equals the
// coefficient of variation for normal noise.
//
// The mean absolute deviation grows in proportion to the time with a bad rate. Unlike the standard deviation,
// it is not dominated by a single stall. Unlike the median deviation, it shows drops that take less than half
// of the window. The trend is removed, because drift is a separate reason for doubt.
func WindowEvenness(curves []Curve, from, to int64) (float64, bool) {
	return Evenness(binned(curves, from, to, evenBin, evenBinsMax))
}

// binned returns the rates of a window in bins of the given length. The parameter most is the maximum number
// of bins. A long window has longer bins.
func binned(curves []Curve, from, to, length, most int64) []float64 {
	return Rates(curves, from, to, int(max(min((to-from)/length, most), 0)))
}

// Evenness returns the consistency ratio of equally spaced rates. It returns false if there are too few
// rates, or if their mean is not positive.
func Evenness(rate []float64) (float64, bool) {
	n := float64(len(rate))
	mean := Total(rate) / n
	if len(rate) < evenBinsMin || !(mean > 0) {
		return 0, false
	}

	slope := 0.0
	squares := 0.0
	for i, r := range rate {
		x := float64(i) - (n-1)/2
		slope += x * r
		squares += x * x
	}

	slope /= squares
	deviation := 0.0
	for i, r := range rate {
		deviation += math.Abs(r - mean - slope*(float64(i)-(n-1)/2))
	}

	// The trend uses two degrees of freedom.
	return math.Sqrt(math.Pi/2) * deviation / math.Sqrt(n*(n-2)) / mean, true
}

// Bins and thresholds of the drift test. A third of the window needs five bins. Long windows have longer bins
// instead of more bins, so that slow oscillations of a TCP flow do not look like a trend.
const (
	driftBin     = int64(100e6) // ns, shortest bin
	driftBinsMin = 15
	driftBinsMax = 30
	// driftLevel is two-sided. With five bins per third, the smallest possible p-value is .0079, and Drift
	// uses it as the level instead.
	driftLevel = .0025
	driftShift = .10 // smallest relative change that matters

	DriftLeast = driftBinsMin * driftBin // ns, shortest window that can be tested
)

// WindowDrift returns the relative change from the first to the last third of a window. It returns false if
// the change is not significant (Mann–Whitney) or is below 10 %. The tests simulate how often it raises a
// false alarm on steady series.
func WindowDrift(curves []Curve, from, to int64) (float64, bool) {
	return Drift(binned(curves, from, to, driftBin, driftBinsMax))
}

// Drift is like WindowDrift for equally spaced rates.
func Drift(rate []float64) (float64, bool) {
	third := len(rate) / 3
	if len(rate) < driftBinsMin {
		return 0, false
	}

	first := rate[:third]
	last := rate[len(rate)-third:]
	from := Median(first)
	to := Median(last)
	if !(from > 0) || math.Abs(to/from-1) < driftShift {
		return 0, false
	}

	least := 2 * math.Exp(-logChoose(2*third, third)) // p-value if the thirds do not overlap
	if MannWhitney(first, last) > max(driftLevel, 1.001*least) {
		return 0, false
	}

	return to/from - 1, true
}
