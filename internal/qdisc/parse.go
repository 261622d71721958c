package qdisc

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

func want(format string, args ...any) error { return fmt.Errorf("want "+format, args...) }

// Parse parses a level. A level is one root qdisc, or the qdiscs of several classes, separated by commas.
func Parse(text string) (all []Queue, err error) {
	for part := range strings.SplitSeq(text, ",") {
		q, err := ParseOne(part)
		if err != nil {
			return nil, err
		}

		if slices.ContainsFunc(all, func(o Queue) bool { return o.Parent == q.Parent }) {
			return nil, want("each class once, as in parent 1:10 pfifo limit 100, parent 1:20 fq_codel")
		}

		all = append(all, q)
	}

	if len(all) > 1 && slices.ContainsFunc(all, func(q Queue) bool { return q.Parent == 0 }) {
		return nil, want("either one root queue or queues of its classes")
	}
	return all, nil
}

// Spell returns the canonical text of a level.
func Spell(all []Queue) string {
	words := make([]string, len(all))
	for i, q := range all {
		words[i] = q.String()
	}
	return strings.Join(words, ", ")
}

// parsePlace parses the parent class or the handle in front of a qdisc's kind. It returns the remaining words
// in left.
func parsePlace(words []string) (q Queue, left []string, err error) {
	for len(words) >= 2 {
		at := map[string]*uint32{"parent": &q.Parent, "handle": &q.Handle}[words[0]]
		if at == nil {
			break
		}

		h, ok := ParseHandle(words[1])
		if !ok || words[0] == "handle" && h&0xffff != 0 || words[0] == "parent" && h&0xffff == 0 {
			return q, nil, want("%s as tc(8) writes it: a handle such as 8001:, a class such as 1:10",
				words[0])
		}

		*at, words = h, words[2:]
	}
	return q, words, nil
}

// ParseOne parses one qdisc.
func ParseOne(text string) (Queue, error) {
	q, words, err := parsePlace(strings.Fields(text))
	if err != nil {
		return Queue{}, err
	}

	if len(words) == 0 {
		return Queue{}, want("a kind: %s", strings.Join(Kinds(), ", "))
	}

	if len(words) == 1 && words[0] == DefaultLeaf && q.Parent != 0 {
		q.Kind = DefaultLeaf
		return q, nil
	}

	parameters, ok := Parameters(words[0])
	if !ok {
		return Queue{}, check.Hinted(check.Meant(words[0], Kinds()), "want one of these kinds: %s",
			strings.Join(Kinds(), ", "))
	}

	q.Kind = words[0]
	q.Values = map[string]uint64{}
	for words = words[1:]; len(words) > 0; {
		used, err := parseParameter(q, parameters, words)
		if err != nil {
			return Queue{}, err
		}

		words = words[used:]
	}

	for _, p := range parameters {
		_, given := q.Values[p.Name]
		if !given && p.Required {
			example := "256k"
			if p.Quantity == BitsPerSecond {
				example = "300M"
			}
			return Queue{}, want("a %s, such as %[2]s %[1]s %[3]s", p.Name, q.Kind, example)
		}
	}

	if q.Values["reorder"] > 0 && q.Values["delay"] == 0 {
		return Queue{}, want("a delay that a packet can overtake others by, such as netem delay 5ms " +
			"reorder 25%%")
	}

	fillDefaults(q, parameters)
	return q, nil
}

// parseParameter parses the parameter at the front of words, stores its value in q.Values, and returns the
// number of words that it consumed.
func parseParameter(q Queue, parameters []Parameter, words []string) (int, error) {
	set := func(name string, v uint64) error {
		_, twice := q.Values[name]
		if twice {
			return fmt.Errorf("%s is given twice", name)
		}

		q.Values[name] = v
		return nil
	}
	var names []string
	for _, p := range parameters {
		switch p.Quantity {
		case Flag:
			if words[0] == p.Name {
				return 1, set(p.Name, 1)
			}

			if words[0] == "no"+p.Name {
				return 1, set(p.Name, 0)
			}
		case Word:
			i := slices.Index(p.Words, words[0])
			if i >= 0 {
				return 1, set(p.Name, uint64(i))
			}

			names = append(names, p.Words...)
			continue
		default:
			if words[0] != p.Name {
				break
			}

			if len(words) < 2 {
				return 0, fmt.Errorf("%s has no value", p.Name)
			}

			v, err := p.Parse(words[1])
			if err != nil {
				return 0, err
			}

			return 2, set(p.Name, v)
		}

		names = append(names, p.Name)
	}

	if len(names) == 0 {
		return 0, fmt.Errorf("%s takes no parameters", q.Kind)
	}

	return 0, check.Hinted(check.Meant(words[0], names), "%s: want %s", words[0], strings.Join(names, ", "))
}

// fillDefaults sets omitted parameters. The default burst of a shaper holds 2 ms of data at its rate. The
// default limit holds 10 ms of data. Both hold at least a few of the 64 KiB packets of segmentation offload.
func fillDefaults(q Queue, parameters []Parameter) {
	fill := func(name string, v uint64) {
		_, given := q.Values[name]
		if !given {
			q.Values[name] = v
		}
	}
	for _, p := range parameters {
		if p.Default != 0 {
			fill(p.Name, p.Default)
		}
	}

	perMillisecond := q.Values["rate"] / 8 / 1000
	if q.Kind == "tbf" || q.Kind == "htb" {
		fill("burst", Bounded(2*perMillisecond, 128<<10))
	}

	if q.Kind == "tbf" {
		fill("limit", Bounded(10*perMillisecond, 256<<10))
	}
}

// Plain returns a level without the parameters that fillDefaults adds.
func Plain(level string) string {
	q, err := ParseOne(level)
	if err != nil || strings.Contains(level, ",") {
		return level
	}

	parameters, _ := Parameters(q.Kind)
	for _, p := range parameters {
		v, given := q.Values[p.Name]
		if !given || p.Required {
			continue
		}

		delete(q.Values, p.Name)
		filled := Queue{Kind: q.Kind, Values: maps.Clone(q.Values)}
		if fillDefaults(filled, parameters); filled.Values[p.Name] != v {
			q.Values[p.Name] = v
		}
	}

	return q.String()
}

// Bounded rounds v up to whole KiB and limits it to the range from least to 31 bits.
func Bounded(v, least uint64) uint64 { return min(max((v+1023)&^1023, least), 1<<31-1024) }

// tick is the resolution of the kernel's token buckets, in seconds. The kernel stores a burst as its
// transmission time at the qdisc's rate, in ticks.
const tick = 64e-9

// Same reports whether the qdisc g, as read from the kernel, matches the requested qdisc w. The kernel rounds
// bursts and times to ticks, and adds defaults.
func Same(w, g Queue) bool {
	if w.Kind != g.Kind || w.Parent != g.Parent || w.Handle != 0 && w.Handle != g.Handle {
		return false
	}

	parameters, _ := Parameters(w.Kind)
	for _, p := range parameters {
		a, asked := w.Values[p.Name]
		b := g.Values[p.Name]
		if !asked || a == b {
			continue
		}

		if p.Quantity != Bytes && p.Quantity != Microseconds &&
			p.Quantity != PartsPerMillion {
			return false
		}

		slack := max(float64(a)*0.002, 2)
		if p.Quantity == Bytes {
			slack = max(slack, float64(w.Values["rate"])/8*tick)
		}

		if float64(b) < float64(a)-slack || float64(b) > float64(a)+slack {
			return false
		}
	}

	return true
}

// Parse parses the value of a parameter and returns it in base units.
func (p Parameter) Parse(text string) (uint64, error) {
	var v uint64
	var ok bool
	want := "a number"
	switch p.Quantity {
	case BitsPerSecond:
		return p.parseRate(text)
	case Bytes:
		v, ok = parseScaled(strings.ToLower(strings.TrimSuffix(text, "b")), SizeScales())
		want = "a size such as 128k"
	case Microseconds:
		v, ok = parseScaled(strings.ReplaceAll(text, "µs", "us"), TimeScales())
		want = "a time such as 5ms"
	case PartsPerMillion:
		percent, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
		v = uint64(math.Round(percent * 1e4))
		ok = err == nil && percent >= 0 && percent <= 100
		want = "a percentage such as 0.5%"
	default:
		v, ok = parseScaled(text, nil)
	}

	if !ok || v > math.MaxInt32 {
		return 0, fmt.Errorf("%s %s: want %s", p.Name, text, want)
	}

	return v, nil
}

// parseRate parses a rate and rounds it down to whole bytes per second, as the kernel does. It rejects the
// suffix bps, which means bytes per second in tc(8) and bits per second everywhere else.
func (p Parameter) parseRate(text string) (uint64, error) {
	if text == "unlimited" && !p.Required {
		return 0, nil
	}

	n := len(text) - len("bps")
	if n >= 0 && strings.EqualFold(text[n:], "bps") {
		return 0, check.Hinted("write bits per second, such as "+text[:n]+"bit",
			"%s %s: bps are bytes per second in tc(8), and bits elsewhere", p.Name, text)
	}

	r, err := unit.ParseBitrate(text)
	if err != nil || float64(r) < 8000 && (r != 0 || p.Required) || float64(r) > 1e13 {
		return 0, fmt.Errorf("%s %s: want a rate such as 300M", p.Name, text)
	}

	return uint64(r) / 8 * 8, nil
}

func parseScaled(text string, scales []Scale) (uint64, bool) {
	factor := uint64(1)
	for _, s := range scales {
		t, found := strings.CutSuffix(text, s.Suffix)
		if found {
			text = t
			factor = s.Factor
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
