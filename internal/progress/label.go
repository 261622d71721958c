package progress

import (
	"sort"
	"strings"
	"unicode"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// labelOf names a cell for people: the sender's label, else one made from
// the factors.
func labelOf(e record.Event) string {
	if e.Text != "" {
		return clean(e.Text)
	}
	if len(e.Cell) == 0 {
		return e.Row
	}
	return describe(e.Cell)
}

// describe makes a short label of a cell's factors: the leading ones by their
// bare values, then name=value of those that are not at a plain level.
func describe(f record.Factors) string {
	var parts []string
	used := map[string]bool{}
	for _, name := range []string{"tunnel", "protocol", "streams", "direction"} {
		used[name] = true
		value := clean(f[name])
		switch {
		case value == "":
			continue
		case name == "tunnel" && value == "none":
			value = "no tunnel"
		case name == "streams" && value == "1":
			value = "1 stream"
		case name == "streams":
			value += " streams"
		}
		parts = append(parts, value)
	}
	var rest []string
	for name, value := range f {
		if !used[name] && !plainLevel(name, value) {
			rest = append(rest, clean(name)+"="+clean(value))
		}
	}
	sort.Strings(rest)
	return strings.Join(append(parts, rest...), " ")
}

// plainLevel says that a level is the ordinary one and needs no mention.
func plainLevel(name, value string) bool {
	switch value {
	case "", "off", "none", "default", "auto", "-":
		return true
	}
	switch name + "=" + value {
	case "topology=forward", "ip=4", "offload=wire", "rate=flat", "engine=native", "congestion=cubic":
		return true
	}
	return false
}

// clean makes text fit for one line of a terminal: no control characters, so
// that nothing a node reports can move the cursor, and no line breaks.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || r >= '\u202a' && r <= '\u202e':
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
}
