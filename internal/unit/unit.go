// Package unit holds the quantities that cross package borders and their human spelling. Values are kept in
// base units; scaling happens only here, when text is made.
package unit

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Bitrate is bits per second. Which layer's bits is said by the metric's name.
type Bitrate float64

// PacketRate is packets per second.
type PacketRate float64

// ParseBitrate reads "300M", "1.5G", "64k", "300 Mbit/s", "2.5Gbps" or a plain number of bits per second.
// Prefixes are decimal, as in all network rates.
func ParseBitrate(text string) (Bitrate, error) {
	s := strings.TrimSpace(text)
	for _, suffix := range []string{"bit/s", "bits/s", "bps", "bit", "b/s"} {
		if t, ok := strings.CutSuffix(s, suffix); ok {
			s = strings.TrimSpace(t)
			break
		}
	}
	v, err := parseScaled(s)
	if err != nil {
		return 0, fmt.Errorf("parse rate %q: want a number with k, M or G, such as 300M", text)
	}
	return Bitrate(v), nil
}

// ParsePacketRate reads "250k", "1.2M", "1500pps" or a plain number.
func ParsePacketRate(text string) (PacketRate, error) {
	s := strings.TrimSuffix(strings.TrimSpace(text), "pps")
	v, err := parseScaled(strings.TrimSpace(s))
	if err != nil {
		return 0, fmt.Errorf("parse packet rate %q: want a number with k or M, such as 250k", text)
	}
	return PacketRate(v), nil
}

func parseScaled(s string) (float64, error) {
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

func scaled(v float64, unit string) string {
	abs := math.Abs(v)
	switch {
	case abs >= 999.5e6:
		return Significant(v/1e9, 3) + " G" + unit
	case abs >= 999.5e3:
		return Significant(v/1e6, 3) + " M" + unit
	case abs >= 999.5:
		return Significant(v/1e3, 3) + " k" + unit
	}
	return Significant(v, 3) + " " + unit
}

// Significant formats v with n significant digits and no exponent.
func Significant(v float64, n int) string {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	digits := n - 1 - int(math.Floor(math.Log10(math.Abs(v))))
	if digits < 0 {
		digits = 0
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

// Nanoseconds prints a duration given in nanoseconds with three significant digits and the unit the field
// uses: "8.50 µs", "1.20 ms".
func Nanoseconds(ns float64) string {
	abs := math.Abs(ns)
	switch {
	case abs >= 1e9:
		return Significant(ns/1e9, 3) + " s"
	case abs >= 1e6:
		return Significant(ns/1e6, 3) + " ms"
	case abs >= 1e3:
		return Significant(ns/1e3, 3) + " µs"
	}
	return Significant(ns, 3) + " ns"
}

// Percent prints a ratio as a percentage with three significant digits.
func Percent(ratio float64) string { return Significant(ratio*100, 3) + " %" }

// Ratio prints how much one thing is of another: "81.3 %", and from twice on "×2.33", "×2,330".
func Ratio(ratio float64) string {
	if math.Abs(ratio) < 2 || math.IsNaN(ratio) || math.IsInf(ratio, 0) {
		return Percent(ratio)
	}
	digits, fraction, _ := strings.Cut(Significant(ratio, 3), ".")
	if len(digits) > 3 { // three digits are told of so large a ratio
		digits = strconv.FormatFloat(math.Round(ratio/math.Pow10(len(digits)-3))*math.Pow10(len(digits)-3),
			'f', 0, 64)
	}
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return strings.TrimSuffix("×"+digits+"."+fraction, ".")
}

// Seconds prints a duration for people: "1m10s", "2.5s".
func Seconds(d time.Duration) string {
	if d >= 10*time.Second {
		return d.Round(time.Second).String()
	}
	return d.Round(100 * time.Millisecond).String()
}
