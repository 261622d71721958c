package knob

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// scale is a suffix and what it multiplies by.
type scale struct {
	suffix string
	factor uint64
}

// The suffixes of tc(8), the largest first: sizes are binary, rates decimal.
func sizeScales() []scale { return []scale{{"m", 1 << 20}, {"k", 1 << 10}} }
func rateScales() []scale { return []scale{{"G", 1e9}, {"M", 1e6}, {"k", 1e3}} }
func timeScales() []scale { return []scale{{"ms", 1e3}, {"us", 1}, {"s", 1e6}} }

// parseQuantity reads the value of a queue's parameter into base units.
func parseQuantity(p kernel.Parameter, text string) (uint64, error) {
	var v uint64
	var ok bool
	want := "a number"
	switch p.Quantity {
	case kernel.BitsPerSecond:
		return parseRate(p, text)
	case kernel.Bytes:
		v, ok = parseScaled(strings.ToLower(strings.TrimSuffix(text, "b")), sizeScales())
		want = "a size such as 128k"
	case kernel.Microseconds:
		v, ok = parseScaled(strings.ReplaceAll(text, "µs", "us"), timeScales())
		want = "a time such as 5ms"
	case kernel.PartsPerMillion:
		percent, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
		v, ok = uint64(math.Round(percent*1e4)), err == nil && percent >= 0 && percent <= 100
		want = "a percentage such as 0.5%"
	default:
		v, ok = parseScaled(text, nil)
	}
	if !ok || v > math.MaxInt32 {
		return 0, fmt.Errorf("%s %s: want %s", p.Name, text, want)
	}
	return v, nil
}

// parseRate reads a rate; the kernel keeps whole bytes per second.
func parseRate(p kernel.Parameter, text string) (uint64, error) {
	if text == "unlimited" && !p.Required {
		return 0, nil
	}
	r, err := unit.ParseBitrate(text)
	if err != nil || float64(r) < 8000 && (r != 0 || p.Required) || float64(r) > 1e13 {
		return 0, fmt.Errorf("%s %s: want a rate such as 300M", p.Name, text)
	}
	return uint64(r) / 8 * 8, nil
}

func parseScaled(text string, scales []scale) (uint64, bool) {
	factor := uint64(1)
	for _, s := range scales {
		if t, found := strings.CutSuffix(text, s.suffix); found {
			text, factor = t, s.factor
			break
		}
	}
	if v, err := strconv.ParseUint(text, 10, 64); err == nil {
		return v * factor, v <= math.MaxInt32
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || factor == 1 || !(v >= 0 && v <= math.MaxInt32) || strings.ContainsAny(text,
		"xXpPeE_+-") {
		return 0, false
	}
	return uint64(math.Round(v * float64(factor))), true
}

// spellQuantity writes a value with the largest suffix that divides it.
func spellQuantity(p kernel.Parameter, v uint64) string {
	switch p.Quantity {
	case kernel.BitsPerSecond:
		if v == 0 {
			return "unlimited"
		}
		return spellScaled(v, rateScales(), "")
	case kernel.Bytes:
		return spellScaled(v, sizeScales(), "")
	case kernel.Microseconds:
		return spellScaled(v, []scale{{"s", 1e6}, {"ms", 1e3}}, "us")
	case kernel.PartsPerMillion:
		return strconv.FormatFloat(float64(v)/1e4, 'f', -1, 64) + "%"
	}
	return strconv.FormatUint(v, 10)
}

func spellScaled(v uint64, scales []scale, base string) string {
	for _, s := range scales {
		if v != 0 && v%s.factor == 0 {
			return strconv.FormatUint(v/s.factor, 10) + s.suffix
		}
	}
	return strconv.FormatUint(v, 10) + base
}
