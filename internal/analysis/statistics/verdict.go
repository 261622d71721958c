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

// VerdictOfRatio returns the verdict about a ratio, based on its interval and on the p-value from the test of
// its family. If the interval lies within ±SmallestRelevant, the verdict is the same even for a significant
// difference.
func VerdictOfRatio(n int, low, high, p float64) string {
	if n >= MinInterval && low >= 1/(1+SmallestRelevant) && high <= 1+SmallestRelevant {
		return SameWithin
	}
	return verdictAgainst(1, n, low, high, p)
}

// VerdictOfDifference returns the verdict about a difference by the same rule as VerdictOfRatio, except that
// the interval must be exactly zero to count as the same.
func VerdictOfDifference(n int, low, high, p float64) string {
	if n >= MinInterval && low == 0 && high == 0 {
		return Same
	}
	return verdictAgainst(0, n, low, high, p)
}

// verdictAgainst compares an interval with the value none, which means no difference.
func verdictAgainst(none float64, n int, low, high, p float64) string {
	switch {
	case n < MinInterval:
		return TooFew()
	case p <= 1-Level && (low > none || high < none):
		return Different
	}
	return CannotTell
}
