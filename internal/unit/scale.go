package unit

import (
	"math"
	"strconv"
)

// Scale is a decimal prefix chosen once, for numbers that are shown side by side: the ends of an interval,
// the ticks of an axis.
type Scale struct {
	Div  float64 // divide by this
	Unit string  // then this is the unit: "Gbit/s", "µs", "%", ""
}

// ScaleOf picks the scale for a base unit (bit/s, pps, bytes, Hz, ns, s, ratio, count, W, °C) by the
// largest magnitude to be shown. Ratios become per cent; a unit it does not know is shown as it is.
func ScaleOf(base string, largest float64) Scale {
	abs := math.Abs(largest)
	switch base {
	case "bit/s", "pps", "bytes", "Hz":
		switch {
		case abs >= 999.5e6:
			return Scale{1e9, "G" + base}
		case abs >= 999.5e3:
			return Scale{1e6, "M" + base}
		case abs >= 999.5:
			return Scale{1e3, "k" + base}
		}
	case "ns":
		switch {
		case abs >= 1e9:
			return Scale{1e9, "s"}
		case abs >= 1e6:
			return Scale{1e6, "ms"}
		case abs >= 1e3:
			return Scale{1e3, "µs"}
		}
	case "ratio":
		return Scale{0.01, "%"}
	case "count":
		return Scale{1, ""}
	}
	return Scale{1, base}
}

// Number prints v in the scale with three significant digits, without the unit. Whole numbers of a unit
// without prefix stay whole.
func (s Scale) Number(v float64) string {
	x := v / s.Div
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
