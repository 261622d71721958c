package factor

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// LevelError says that a text is no level of a factor.
type LevelError struct {
	Text string // as written
	Want string // what is allowed
	Near string // the level that was probably meant; may be empty
}

func (e *LevelError) Error() string { return fmt.Sprintf("%q is not %s", e.Text, e.Want) }

// Hint names the level that was probably meant.
func (e *LevelError) Hint() string {
	if e.Near == "" {
		return ""
	}
	return fmt.Sprintf("did you mean %s?", e.Near)
}

// WholeForm leaves out signs, leading zeros, underscores and exponents, which YAML dialects read in
// different ways.
var WholeForm = regexp.MustCompile(`^(0|[1-9][0-9]{0,17})$`)

// ParseWhole reads a whole number, written with digits only.
func ParseWhole(text string, low, high int64) (int64, error) {
	want := fmt.Sprintf("a whole number from %d to %d", low, high)
	if !WholeForm.MatchString(text) {
		return 0, &LevelError{Text: text, Want: want}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < low || n > high {
		return 0, &LevelError{Text: text, Want: want}
	}
	return n, nil
}

// Whole makes a Declaration.Parse for whole numbers.
func Whole(low, high int64) func(string) (string, error) {
	return func(text string) (string, error) {
		if _, err := ParseWhole(text, low, high); err != nil {
			return "", err
		}
		return text, nil
	}
}

// orIMIX makes a Declaration.Parse for sizes, or a mix of them.
func orIMIX(parse func(string) (string, error)) func(string) (string, error) {
	return func(text string) (string, error) {
		level, err := parse(text)
		if wrong, ok := err.(*LevelError); ok {
			if text == IMIX {
				return text, nil
			}
			wrong.Want, wrong.Near = wrong.Want+", or "+IMIX, Nearest(text, []string{IMIX})
		}
		return level, err
	}
}

// Choice makes a Declaration.Parse for a closed set of levels.
func Choice(levels ...string) func(string) (string, error) {
	return func(text string) (string, error) {
		if slices.Contains(levels, text) {
			return text, nil
		}
		return "", &LevelError{Text: text, Want: OneOf(levels), Near: Nearest(text, levels)}
	}
}

// OneOf says which levels are allowed.
func OneOf(levels []string) string {
	if len(levels) == 1 {
		return levels[0]
	}
	if len(levels) == 2 {
		return levels[0] + " or " + levels[1]
	}
	return "one of " + strings.Join(levels, ", ")
}

// MaxRate is far above any link; it keeps later sums finite.
const MaxRate = 1e14

// Flat is as fast as it goes.
const Flat = "flat"

// parseRate reads a rate, flat, or a share of a rate.
func parseRate(text string) (string, error) {
	return shareOf(text, func(text string) (string, error) {
		if text == Flat {
			return text, nil
		}
		rate, ok := rateValue(text)
		if !ok {
			return "", &LevelError{Text: text,
				Want: "flat, a bit rate such as 300M, or a share such as 90% of found",
				Near: Nearest(text, []string{Flat})}
		}
		return rateText(rate), nil
	})
}

// rateValue reads a bit rate.
func rateValue(text string) (float64, bool) {
	rate, err := unit.ParseBitrate(text)
	return float64(rate), err == nil && rate > 0 && rate <= MaxRate
}

// parsePacing reads a rate, or a share of a rate.
func parsePacing(text string) (string, error) {
	return shareOf(text, func(text string) (string, error) {
		rate, ok := rateValue(text)
		if !ok {
			return "", &LevelError{Text: text,
				Want: "a bit rate such as 300M, or a share such as 90% of found"}
		}
		return rateText(rate), nil
	})
}

// rateText is the canonical text of a bit rate: the largest prefix that leaves a number of at least one.
func rateText(v float64) string {
	for _, s := range []struct {
		scale float64
		name  string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if v >= s.scale {
			return strconv.FormatFloat(v/s.scale, 'f', -1, 64) + s.name
		}
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// Nearest returns the candidate that text was probably meant to be, or "".
func Nearest(text string, candidates []string) string {
	best, limit := "", min(3, len(text)/2+1)
	for _, c := range candidates {
		if d := distance(strings.ToLower(text), c, limit); d < limit {
			best, limit = c, d
		}
	}
	return best
}

// distance counts the insertions, deletions, replacements and swaps of neighbours that turn a into b
// (optimal string alignment), up to limit.
func distance(a, b string, limit int) int {
	if len(a) > 64 || len(b) > 64 || len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	var rows [3][65]int
	before, above, row := &rows[0], &rows[1], &rows[2]
	for j := range len(b) + 1 {
		above[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(above[j]+1, row[j-1]+1, above[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, above, row = above, row, before
	}
	return above[len(b)]
}

// MostConnectionRate is the highest rate of new connections that can be asked for, per second.
const MostConnectionRate = 1e7

// ConnectionRateLevel reads how many connections a second are begun.
func ConnectionRateLevel(text string) (string, error) {
	rate, err := unit.ParsePacketRate(text)
	if err != nil || rate < 1 || rate > MostConnectionRate {
		return "", &LevelError{Text: text,
			Want: "a rate from 1 to 10M connections a second, such as 500 or 2k"}
	}
	return rateText(float64(rate)), nil
}
