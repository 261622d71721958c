package statistics

import "math"

// Bins for the evenness of a window: at least 200 ms each, because shorter ones show the rhythm of the
// scheduler and of delayed acknowledgements, and at most as many as a chart of a minute has.
const (
	evenBin     = int64(200e6) // ns
	evenBinsMin = 7            // a window of a second and a half
	evenBinsMax = 120
)

// Words of the consistency grade and the largest ratio of each. Calibration, verified by tests on simulated
// series: a steady rate with 2 % noise is "Very good"; CUBIC's sawtooth without a queue to smooth it (down to
// 70 %) is "Good" to "Fair"; Reno's (down to 50 %) and a link that stalls every few seconds are "Poor".
var consistencyWords = [...]struct {
	word string
	most float64
}{{"Very good", .03}, {"Good", .08}, {"Fair", .18}}

// ConsistencyWord grades a consistency ratio.
func ConsistencyWord(ratio float64) string {
	for _, w := range consistencyWords {
		if ratio <= w.most {
			return w.word
		}
	}
	return "Poor"
}

// WindowEvenness returns the consistency ratio of a window: the mean absolute deviation of the binned rates
// from their linear trend ÷ their mean, times 1.2533, so that it equals the coefficient of variation for
// normal noise. The mean absolute deviation grows in proportion to the bad time: unlike the standard
// deviation it is not dominated by one stall, and unlike the median deviation it does not overlook drops that
// fill less than half the window. The trend is removed because a slow change is drift, a reason of its own.
func WindowEvenness(curves []Curve, from, to int64) (float64, bool) {
	return Evenness(binned(curves, from, to, evenBin, evenBinsMax))
}

// binned returns the rates of a window in bins of a length, or longer ones to keep their number within most.
func binned(curves []Curve, from, to, length, most int64) []float64 {
	return Rates(curves, from, to, int(max(min((to-from)/length, most), 0)))
}

// Evenness returns the consistency ratio of equally spaced rates; ok is false if they are too few or nothing
// flowed.
func Evenness(rate []float64) (float64, bool) {
	n := float64(len(rate))
	mean := Total(rate) / n
	if len(rate) < evenBinsMin || !(mean > 0) {
		return 0, false
	}

	slope, squares := 0.0, 0.0
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

	// The line used two degrees of freedom.
	return math.Sqrt(math.Pi/2) * deviation / math.Sqrt(n*(n-2)) / mean, true
}

// Bounds on the drift test. A third needs five bins; longer windows get longer bins, not more, which also
// keeps the slow swings of a TCP flow from looking like a trend.
const (
	driftBin     = int64(100e6) // ns, the shortest
	driftBinsMin = 15
	driftBinsMax = 30
	driftLevel   = .0025 // two-sided; the smallest p-value for thirds of five is .0079
	driftShift   = .10   // smallest relative change that matters

	DriftLeast = driftBinsMin * driftBin // ns, the shortest window that can be tested
)

// WindowDrift returns by what share the last third of a window differs from the first, if the difference is
// both beyond chance (Mann–Whitney) and at least ten per cent. The tests simulate false alarms on steady
// series.
func WindowDrift(curves []Curve, from, to int64) (float64, bool) {
	return Drift(binned(curves, from, to, driftBin, driftBinsMax))
}

// Drift applies the test to equally spaced rates: the relative change from the first to the last third, and
// whether it is real and large.
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

	least := 2 * math.Exp(-logChoose(2*third, third)) // p-value of completely separate thirds
	if MannWhitney(first, last) > max(driftLevel, 1.001*least) {
		return 0, false
	}

	return to/from - 1, true
}
