// Package unit defines the quantities that packages exchange, and formats them for people. Values are in
// base units. They are scaled only when they are formatted, in this package.
package unit

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Bitrate is a rate in bit/s. The name of a metric states the layer at which the bits are counted.
type Bitrate float64

// PacketRate is a rate in packets per second.
type PacketRate float64

// ParseBitrate parses "300M", "1.5G", "64k", "300 Mbit/s", "2.5Gbps" or a plain number in bit/s. Prefixes
// are decimal, as for all network rates.
func ParseBitrate(text string) (Bitrate, error) {
	v, err := parseScaled(text, "bit/s", "bits/s", "bps", "bit", "b/s")
	if err != nil {
		return 0, fmt.Errorf("parse rate %q: want a number with k, M or G, such as 300M", text)
	}
	return Bitrate(v), nil
}

// ParsePacketRate parses "250k", "1.2M", "1500pps" or a plain number in packets per second.
func ParsePacketRate(text string) (PacketRate, error) {
	v, err := parseScaled(text, "pps")
	if err != nil {
		return 0, fmt.Errorf("parse packet rate %q: want a number with k or M, such as 250k", text)
	}
	return PacketRate(v), nil
}

func parseScaled(text string, units ...string) (float64, error) {
	s := strings.TrimSpace(text)
	for _, u := range units {
		if t, ok := strings.CutSuffix(s, u); ok {
			s = strings.TrimSpace(t)
			break
		}
	}

	if s == "" {
		return 0, strconv.ErrSyntax
	}

	scale := 1.0
	switch s[len(s)-1] {
	case 'k', 'K':
		scale = 1e3
	case 'M', 'm':
		scale = 1e6
	case 'G', 'g':
		scale = 1e9
	}

	if scale != 1 {
		s = strings.TrimSpace(s[:len(s)-1])
	}

	v, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v < 0 || strings.ContainsAny(s, "xXpP_") {
		return 0, strconv.ErrSyntax
	}

	return v * scale, nil
}

// String formats the rate with three significant digits and a decimal prefix: "312 Mbit/s".
func (b Bitrate) String() string { return scaled(float64(b), "bit/s") }

// String formats the rate with three significant digits and a decimal prefix: "184 kpps".
func (p PacketRate) String() string { return scaled(float64(p), "pps") }

func scaled(v float64, base string) string {
	s := ScaleOf(base, v)
	return Significant(v/s.Div, 3) + " " + s.Unit
}

// Significant formats v with n significant digits, without an exponent.
func Significant(v float64, n int) string {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}

	_, exponent, _ := strings.Cut(strconv.FormatFloat(v, 'e', n-1, 64), "e") // exponent of the rounded number
	e, _ := strconv.Atoi(exponent)
	return strconv.FormatFloat(v, 'f', max(0, n-1-e), 64)
}

// Nanoseconds formats a duration in nanoseconds with three significant digits and a suitable unit: "8.50
// µs", "1.20 ms".
func Nanoseconds(ns float64) string { return scaled(ns, "ns") }

// Percent formats a ratio as a percentage with three significant digits.
func Percent(ratio float64) string { return Significant(ratio*100, 3) + " %" }

// Ratio formats a ratio of two quantities as a percentage, such as "81.3 %". It formats ratios of 2 or
// more as a factor: "×2.33", "×2,330".
func Ratio(ratio float64) string {
	if math.Abs(ratio) < 2 || math.IsNaN(ratio) || math.IsInf(ratio, 0) {
		return Percent(ratio)
	}
	return Times(ratio)
}

// Times formats a ratio as a factor: "×0.813", "×2,330".
func Times(ratio float64) string { return "×" + Grouped(ratio) }

// Grouped formats a number with three significant digits and thousands separators: "0.813", "2,330",
// "899,000".
func Grouped(v float64) string {
	digits, fraction, _ := strings.Cut(Significant(v, 3), ".")
	if len(digits) > 3 { // round to three digits
		return Whole(math.Round(v/math.Pow10(len(digits)-3)) * math.Pow10(len(digits)-3))
	}
	return strings.TrimSuffix(digits+"."+fraction, ".")
}

// Whole formats a number without its fraction, with thousands separators: "12,345".
func Whole(n float64) string {
	digits := strconv.FormatFloat(math.Round(n), 'f', 0, 64)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Seconds formats a duration, rounded to seconds or, if it is short, to tenths of a second: "1m10s", "2.5s".
func Seconds(d time.Duration) string {
	if d >= 10*time.Second {
		return Duration(d.Round(time.Second))
	}
	return d.Round(100 * time.Millisecond).String()
}

// Duration formats a duration without zero parts: "1h", not "1h0m0s".
func Duration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}

	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}

	return text
}

// Scale is a common decimal prefix for numbers that are shown together, such as the bounds of an interval
// or the ticks of an axis.
type Scale struct {
	Div  float64 // divisor
	Unit string  // unit after division, such as "Gbit/s", "µs", "%" or ""
}

// ScaleOf returns the scale for a base unit (bit/s, pps, bytes, B/s, op/s, Hz, ns, s, ratio, count, W, °C)
// and the largest number to be shown. Ratios are scaled to percent. Numbers with an unknown unit are not
// scaled.
func ScaleOf(base string, largest float64) Scale {
	var scales []Scale
	least := 1.0 // smallest value after scaling
	switch base {
	case "bit/s", "pps", "bytes", "B/s", "op/s", "Hz":
		scales = []Scale{{1e9, "G" + base}, {1e6, "M" + base}, {1e3, "k" + base}}
		least = 0.9995
	case "ns":
		scales = []Scale{{1e9, "s"}, {1e6, "ms"}, {1e3, "µs"}}
	case "ratio":
		return Scale{0.01, "%"}
	case "count":
		return Scale{1, ""}
	}

	for _, s := range scales {
		if math.Abs(largest) >= least*s.Div {
			return s
		}
	}

	return Scale{1, base}
}

// Number formats v in the scale with three significant digits, without the unit. If the scale has no
// prefix, integers are formatted as integers.
func (s Scale) Number(v float64) string {
	x := v / s.Div
	if s.Unit == "cycles" { // cycles have no prefixes
		return Grouped(x)
	}

	if s.Div == 1 && x == math.Trunc(x) && math.Abs(x) < 1e15 {
		return strconv.FormatFloat(x, 'f', 0, 64)
	}

	return Significant(x, 3)
}

// Text formats v in the scale with its unit.
func (s Scale) Text(v float64) string {
	if s.Unit == "" {
		return s.Number(v)
	}
	return s.Number(v) + " " + s.Unit
}

// Arch returns the usual name of an architecture from Go's name: mipsel for mipsle.
func Arch(goarch string) string { return strings.Replace(goarch, "mipsle", "mipsel", 1) }

// System returns the name of an operating system from Go's name. For "", it returns Linux, because old
// records do not contain the name.
func System(goos string) string {
	switch goos {
	case "darwin":
		return "macOS"
	case "freebsd":
		return "FreeBSD"
	case "linux", "":
		return "Linux"
	}
	return goos
}

// Count formats a number with its noun: "1 trial", "3 trials".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
