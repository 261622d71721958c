package qdisc

import (
	"fmt"
	"strconv"
	"strings"
)

// Scale holds a unit suffix and its factor.
type Scale struct {
	Suffix string
	Factor uint64
}

// SizeScales, RateScales and TimeScales return the suffixes of tc(8). The factors of sizes are binary, and
// the factors of rates are decimal. Times are in microseconds.
func SizeScales() []Scale { return []Scale{{"m", 1 << 20}, {"k", 1 << 10}} }
func RateScales() []Scale { return []Scale{{"G", 1e9}, {"M", 1e6}, {"k", 1e3}} }
func TimeScales() []Scale { return []Scale{{"ms", 1e3}, {"us", 1}, {"s", 1e6}} }

// Special handles from linux/pkt_sched.h.
const (
	HandleRoot    = 0xffffffff
	HandleIngress = 0xfffffff1
)

// HandleText formats the handle of a qdisc or class as tc(8) does: "8001:", "1:10".
func HandleText(h uint32) string {
	switch h {
	case HandleRoot:
		return "root"
	case HandleIngress:
		return "ingress"
	}

	if h&0xffff == 0 {
		return fmt.Sprintf("%x:", h>>16)
	}
	return fmt.Sprintf("%x:%x", h>>16, h&0xffff)
}

// ParseHandle parses the handle of a qdisc or class.
func ParseHandle(text string) (uint32, bool) {
	major, minor, ok := strings.Cut(text, ":")
	a, err := strconv.ParseUint(major, 16, 16)
	b := uint64(0)
	wrong := error(nil)
	if minor != "" {
		b, wrong = strconv.ParseUint(minor, 16, 16)
	}

	if !ok || err != nil || wrong != nil || a == 0 {
		return 0, false
	}

	return uint32(a<<16 | b), true
}

// String formats the qdisc in the syntax of tc(8), with parameters in canonical order. A parent or handle
// precedes the kind.
func (q Queue) String() string {
	var words []string
	if q.Parent != 0 {
		words = append(words, "parent", HandleText(q.Parent))
	}

	if q.Handle != 0 {
		words = append(words, "handle", HandleText(q.Handle))
	}

	parameters, _ := Parameters(q.Kind)
	words = append(words, q.Kind)
	for _, p := range parameters {
		v, given := q.Values[p.Name]
		if !given {
			continue
		}

		switch {
		case p.Quantity == Flag && v == 0:
			words = append(words, "no"+p.Name)
		case p.Quantity == Flag:
			words = append(words, p.Name)
		case p.Quantity == Word && v < uint64(len(p.Words)):
			words = append(words, p.Words[v])
		case p.Quantity == Word: // a newer kernel's value, which Words lacks, is omitted
		default:
			words = append(words, p.Name, p.Spell(v))
		}
	}

	return strings.Join(words, " ")
}

// TC returns the arguments that follow "tc qdisc replace dev DEVICE": parent, kind and parameters.
func (q Queue) TC() []string {
	words := []string{"root"}
	if q.Parent != 0 {
		words = []string{"parent", HandleText(q.Parent)}
	}
	return append(words, q.TCOptions()...)
}

// TCOptions returns the kind and the parameters in the syntax of tc(8), in which rates need a unit.
func (q Queue) TCOptions() []string {
	words := strings.Fields(Queue{Kind: q.Kind, Values: q.Values}.String())
	for i := 1; i < len(words); i++ {
		rate := words[i-1] == "rate" || words[i-1] == "bandwidth"
		if rate && words[i] != "unlimited" {
			words[i] += "bit"
		}
	}
	return words
}

// Spell formats a value of the parameter with the largest suffix whose factor divides it.
func (p Parameter) Spell(v uint64) string {
	switch p.Quantity {
	case BitsPerSecond:
		if v == 0 {
			return "unlimited"
		}
		return SpellScaled(v, RateScales(), "")
	case Bytes:
		return SpellScaled(v, SizeScales(), "")
	case Microseconds:
		return SpellScaled(v, []Scale{{"s", 1e6}, {"ms", 1e3}}, "us")
	case PartsPerMillion:
		return strconv.FormatFloat(float64(v)/1e4, 'f', -1, 64) + "%"
	}
	return strconv.FormatUint(v, 10)
}

// SpellScaled formats a number with the first suffix whose factor divides it. If no factor does, it uses the
// suffix base.
func SpellScaled(v uint64, scales []Scale, base string) string {
	for _, s := range scales {
		if v != 0 && v%s.Factor == 0 {
			return strconv.FormatUint(v/s.Factor, 10) + s.Suffix
		}
	}
	return strconv.FormatUint(v, 10) + base
}
