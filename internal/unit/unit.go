// Package unit defines the quantities that cross package borders, and how they are written for people. Values
// are in base units; scaling happens only here, when text is made.
package unit

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Bitrate is bits per second. The metric's name states which layer's bits.
type Bitrate float64

// PacketRate is packets per second.
type PacketRate float64

// ParseBitrate reads "300M", "1.5G", "64k", "300 Mbit/s", "2.5Gbps" or a plain number of bits per second.
// Prefixes are decimal, as in all network rates.
func ParseBitrate(text string) (Bitrate, error) {
	v, err := parseScaled(text, "bit/s", "bits/s", "bps", "bit", "b/s")
	if err != nil {
		return 0, fmt.Errorf("parse rate %q: want a number with k, M or G, such as 300M", text)
	}
	return Bitrate(v), nil
}

// ParsePacketRate reads "250k", "1.2M", "1500pps" or a plain number.
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

// String prints three significant digits with a decimal prefix: "312 Mbit/s".
func (b Bitrate) String() string { return scaled(float64(b), "bit/s") }

// String prints three significant digits with a decimal prefix: "184 kpps".
func (p PacketRate) String() string { return scaled(float64(p), "pps") }

func scaled(v float64, base string) string {
	s := ScaleOf(base, v)
	return Significant(v/s.Div, 3) + " " + s.Unit
}

// Significant formats v with n significant digits and no exponent.
func Significant(v float64, n int) string {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'f', max(0, n-1-int(math.Floor(math.Log10(math.Abs(v))))), 64)
}

// Nanoseconds prints a duration given in nanoseconds with three significant digits and the unit usual in the
// field: "8.50 µs", "1.20 ms".
func Nanoseconds(ns float64) string { return scaled(ns, "ns") }

// Percent prints a ratio as a percentage with three significant digits.
func Percent(ratio float64) string { return Significant(ratio*100, 3) + " %" }

// Ratio prints how large one quantity is compared with another: "81.3 %", and from twice on "×2.33",
// "×2,330".
func Ratio(ratio float64) string {
	if math.Abs(ratio) < 2 || math.IsNaN(ratio) || math.IsInf(ratio, 0) {
		return Percent(ratio)
	}
	return Times(ratio)
}

// Times prints a ratio as a factor: "×0.813", "×2,330".
func Times(ratio float64) string { return "×" + Grouped(ratio) }

// Grouped prints three significant digits, with thousands separators: "0.813", "2,330", "899,000".
func Grouped(v float64) string {
	digits, fraction, _ := strings.Cut(Significant(v, 3), ".")
	if len(digits) > 3 { // only three digits of so large a ratio are shown
		return Whole(math.Round(v/math.Pow10(len(digits)-3)) * math.Pow10(len(digits)-3))
	}
	return strings.TrimSuffix(digits+"."+fraction, ".")
}

// Whole prints a number without its fraction, with thousands separators: "12,345".
func Whole(n float64) string {
	digits := strconv.FormatFloat(math.Round(n), 'f', 0, 64)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Seconds prints a duration for people: "1m10s", "2.5s".
func Seconds(d time.Duration) string {
	if d >= 10*time.Second {
		return d.Round(time.Second).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// Scale is a decimal prefix chosen once, for numbers that are shown side by side: the ends of an interval,
// the ticks of an axis.
type Scale struct {
	Div  float64 // divide by this
	Unit string  // the unit is then "Gbit/s", "µs", "%" or ""
}

// ScaleOf picks the scale for a base unit (bit/s, pps, bytes, B/s, op/s, Hz, ns, s, ratio, count, W, °C) by
// the largest magnitude to be shown. Ratios become per cent; an unknown unit is shown unchanged.
func ScaleOf(base string, largest float64) Scale {
	var scales []Scale
	least := 1.0 // smallest value shown with a scale
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

// Number prints v in the scale with three significant digits, without the unit. Whole numbers of a unit
// without prefix stay whole.
func (s Scale) Number(v float64) string {
	x := v / s.Div
	if s.Unit == "cycles" { // they have no prefixes
		return Grouped(x)
	}

	if s.Div == 1 && x == math.Trunc(x) && math.Abs(x) < 1e15 {
		return strconv.FormatFloat(x, 'f', 0, 64)
	}

	return Significant(x, 3)
}

// Text prints v in the scale with its unit.
func (s Scale) Text(v float64) string {
	if s.Unit == "" {
		return s.Number(v)
	}
	return s.Number(v) + " " + s.Unit
}

// Arch returns the usual name of an architecture for Go's: little-endian MIPS is mipsel.
func Arch(goarch string) string { return strings.Replace(goarch, "mipsle", "mipsel", 1) }

// System returns the name of an operating system for Go's; "" is Linux, as in records without one.
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

// Count prints a number with its noun: "1 trial", "3 trials".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
