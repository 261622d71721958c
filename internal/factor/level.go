package factor

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// LevelError reports a text that is not a valid level of a factor.
type LevelError struct {
	Text string // the text in the plan
	Want string // the allowed levels, worded to follow "is not"

	hint string
}

func (e *LevelError) Error() string { return fmt.Sprintf("%q is not %s", e.Text, e.Want) }

// Hint returns a hint with the level that was probably meant, if there is one.
func (e *LevelError) Hint() string { return e.hint }

// WholeForm matches decimal integers. It excludes signs, leading zeros, underscores and exponents, because
// YAML dialects parse them in different ways.
var WholeForm = check.Pattern(`^(0|[1-9][0-9]{0,17})$`)

// ParseWhole parses an integer from low to high that consists of digits only.
func ParseWhole(text string, low, high int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < low || n > high || !WholeForm().MatchString(text) {
		return 0, &LevelError{Text: text, Want: fmt.Sprintf("a whole number from %d to %d", low, high)}
	}
	return n, nil
}

// Whole returns a Declaration.Parse for integers.
func Whole(low, high int64) func(string) (string, error) {
	return func(text string) (string, error) {
		if _, err := ParseWhole(text, low, high); err != nil {
			return "", err
		}
		return text, nil
	}
}

// OrWord returns a Declaration.Parse that accepts the given word and everything that parse accepts.
func OrWord(word string, parse func(string) (string, error)) func(string) (string, error) {
	return func(text string) (string, error) {
		level, err := parse(text)
		if wrong, ok := err.(*LevelError); ok {
			if text == word {
				return text, nil
			}

			wrong.Want, wrong.hint = wrong.Want+", or "+word, check.Meant(text, []string{word})
		}
		return level, err
	}
}

// Formed returns a Declaration.Parse for texts that match form. In errors, want describes such texts.
func Formed(form func() *regexp.Regexp, want string) func(string) (string, error) {
	return func(text string) (string, error) {
		if !form().MatchString(text) {
			return "", &LevelError{Text: text, Want: want}
		}
		return text, nil
	}
}

// Choice returns a Declaration.Parse for a closed set of levels.
func Choice(levels ...string) func(string) (string, error) {
	return func(text string) (string, error) {
		if slices.Contains(levels, text) {
			return text, nil
		}
		return "", &LevelError{text, OneOf(levels), check.Meant(text, levels)}
	}
}

// OneOf formats the allowed levels for an error message.
func OneOf(levels []string) string {
	if len(levels) <= 2 {
		return strings.Join(levels, " or ")
	}
	return "one of " + strings.Join(levels, ", ")
}

// firmwareForm matches the name or version of firmware. A leading dash is excluded, because the command that
// installs the firmware could take the name for an option.
var firmwareForm = check.Pattern(`^[A-Za-z0-9][A-Za-z0-9._+~:/()-]*( [A-Za-z0-9._+~:/()-]+)*$`)

const maxFirmware = 60 // bytes

func firmwareLevel(text string) (string, error) {
	if len(text) > maxFirmware || !firmwareForm().MatchString(text) {
		return "", &LevelError{
			Text: text,
			Want: "words of the version that the router reports, such as 24.10.2",
		}
	}
	return text, nil
}

// Tells reports whether a version reported by a router contains the level as whole words: "openwrt
// 24.10.2" contains 24.10, but neither 4.10 nor 24.1.
func Tells(version, level string) bool {
	alike := func(b byte) bool {
		return b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
	}
	for at := 0; level != ""; at++ {
		i := strings.Index(version[at:], level)
		if i < 0 {
			break
		}

		at += i
		end := at + len(level)
		if (at == 0 || !alike(version[at-1]) && version[at-1] != '.') &&
			(end == len(version) || !alike(version[end])) {
			return true
		}
	}
	return false
}

// MaxRate is the highest bit rate in a plan. It is far above the rate of any link and keeps sums finite.
const MaxRate = 1e14

// Flat is the level of a rate without a limit.
const Flat = "flat"

// rateOr returns a Declaration.Parse for a bit rate, a share of a rate, or one of words.
func rateOr(want string, words ...string) func(string) (string, error) {
	return func(text string) (string, error) {
		return shareOf(text, func(text string) (string, error) {
			if slices.Contains(words, text) {
				return text, nil
			}

			rate := Bitrate(text)
			if rate == 0 {
				return "", &LevelError{text, want, check.Meant(text, words)}
			}

			return RateText(rate), nil
		})
	}
}

// Bitrate returns the level in bit/s, or 0 if it is not a bit rate.
func Bitrate(level string) float64 {
	rate, err := unit.ParseBitrate(level)
	if err != nil || rate < 0 || rate > MaxRate {
		return 0
	}
	return float64(rate)
}

// RateText returns the canonical text of a bit rate, with the largest prefix that leaves a number of at
// least 1.
func RateText(v float64) string {
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

// Spoken returns the level of the factor tunnel for the common name of a tunnel, or "" if the name is
// unknown.
func Spoken(name string) string {
	switch strings.ToLower(name) {
	case "ipsec":
		return "esp"
	case "wg":
		return "wireguard"
	case "ovpn":
		return "openvpn"
	}
	return ""
}

// Kindred returns at most eight candidates that have the most words in common with text, in their original
// order. If no candidate has a word in common with text, it returns none. Underscores separate the words of a
// candidate.
func Kindred(text string, candidates []string) []string {
	const most = 8
	words := strings.FieldsFunc(strings.ToLower(text),
		func(c rune) bool { return strings.ContainsRune("_- ", c) })
	shared := func(candidate string) (n int) {
		for _, part := range strings.Split(candidate, "_") {
			switch {
			case slices.Contains(words, part):
				n += 2
			case check.Nearest(part, words) != "":
				n++
			}
		}
		return n
	}
	best := 1
	var out []string
	for _, c := range candidates {
		switch n := shared(c); {
		case n > best:
			best = n
			out = []string{c}
		case n == best:
			out = append(out, c)
		}
	}

	return out[:min(most, len(out))]
}

// MaxConnectionRate is the highest rate of new connections in a plan, per second.
const MaxConnectionRate = 1e7

// ConnectionRateLevel parses a number of new connections per second.
func ConnectionRateLevel(text string) (string, error) {
	rate, err := unit.ParsePacketRate(text)
	if err != nil || rate < 1 || rate > MaxConnectionRate {
		return "", &LevelError{
			Text: text,
			Want: "a rate from 1 to 10M connections a second, such as 500 or 2k",
		}
	}
	return RateText(float64(rate)), nil
}

// greatestPart is the greatest share that a level may have. A rate may be given as a share: "90% of 300M"
// equals 270M. "90% of found" is a share of the rate that the same cell carries at full rate. The cell's
// trials or its search in the same campaign measure that rate.
const greatestPart = 200 // percent

// OfFound is the suffix of a level that is a share of a measured rate.
const OfFound = "% of found"

var shareForm = check.Pattern(`^([0-9]{1,3}(?:\.[0-9]{1,3})?) ?% ?of (\S.*)$`)

// shareOf parses a level that may be a share. A share of a stated rate is converted to a rate.
func shareOf(text string, parse func(string) (string, error)) (string, error) {
	m := shareForm().FindStringSubmatch(text)
	if m == nil {
		return parse(text)
	}

	part, err := strconv.ParseFloat(m[1], 64)
	if err != nil || part <= 0 || part > greatestPart {
		return "", &LevelError{
			Text: text,
			Want: "a share of more than 0 % and at most 200 %, such as 90% of 300M",
		}
	}

	if m[2] == "found" {
		return strconv.FormatFloat(part, 'f', -1, 64) + OfFound, nil
	}

	whole, err := parse(m[2])
	if err != nil {
		return "", err
	}

	rate := Bitrate(whole)
	if rate == 0 {
		return "", &LevelError{Text: text, Want: "a share of a bit rate, or of found, such as 90% of found"}
	}

	// Round to whole bits per second, because a rate level is a whole number.
	return parse(strconv.FormatFloat(rate*part/100, 'f', 0, 64))
}

// Found describes a load that is a share of a measured rate. Of is the cell whose rate is measured. It has
// the same levels as the cell with the load, but full rate.
type Found struct {
	Share float64 // 1 is 100 %
	Of    Cell
}

// FoundOf describes a cell's load as a share of a measured rate. It returns false if the load is not a
// share of a measured rate. The load is the factor rate for UDP and the factor pacing for TCP.
func FoundOf(cell Cell) (Found, bool) {
	for _, f := range [...]struct {
		rate Name
		full string // the level that means full rate
	}{{Rate, Flat}, {Pacing, ""}} {
		text, ok := strings.CutSuffix(f.rate.Of(cell), OfFound)
		if part, err := strconv.ParseFloat(text, 64); ok && err == nil {
			return Found{part / 100, f.rate.With(cell, f.full)}, true
		}
	}
	return Found{}, false
}
