package statistics

import "fmt"

// SmallestRelevant is the smallest relative difference that matters. Two results whose ratio lies within ±2 %
// count as the same.
const SmallestRelevant = 0.02

// Verdicts of a comparison.
const (
	Different  = "different"
	Same       = "same"
	SameWithin = "same within ±2 %"
	CannotTell = "cannot tell"
)

// TooFew returns the verdict for fewer than MinInterval pairs or, between runs, fewer than MinInterval trials
// in one of the runs.
func TooFew() string { return fmt.Sprintf("%s (n < %d)", CannotTell, MinInterval) }

// Verdict returns the verdict about a ratio or a difference, based on its interval and on the p-value from
// the test of its family. none is the value that means no difference: 1 for a ratio, and 0 for a difference.
// If the interval of a ratio lies within ±SmallestRelevant, the verdict is the same even for a significant
// difference. The interval of a difference must be exactly zero for that verdict.
func Verdict(none float64, n int, low, high, p float64) string {
	switch {
	case n < MinInterval:
		return TooFew()
	case none == 0 && low == 0 && high == 0:
		return Same
	case none == 1 && low >= 1/(1+SmallestRelevant) && high <= 1+SmallestRelevant:
		return SameWithin
	case p <= 1-Level && (low > none || high < none):
		return Different
	}
	return CannotTell
}
