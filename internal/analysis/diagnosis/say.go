package diagnosis

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// say formats a sentence like fmt.Sprintf, with additional verbs for float64 values: %h formats a share in
// per cent, %n nanoseconds, %b bits per second, %k bytes, %r packets per second, %m a multiple, and %g three
// significant digits unless it has a precision. Without values, it returns the sentence unchanged.
func say(sentence string, values ...any) string {
	if len(values) == 0 {
		return sentence
	}

	words := make([]any, len(values))
	for i, v := range values {
		words[i] = v
		if n, ok := v.(float64); ok {
			words[i] = number(n)
		}
	}

	return fmt.Sprintf(sentence, words...)
}

// among reports whether a list, whose words are separated by spaces, contains a word.
func among(word, list string) bool { return slices.Contains(strings.Fields(list), word) }

// number is a float64 that say formats.
type number float64

// Format implements fmt.Formatter for the verbs of say.
func (n number) Format(to fmt.State, verb rune) {
	v := float64(n)
	text := ""
	switch verb {
	case 'h':
		text = unit.Percent(v)
	case 'n':
		text = unit.Nanoseconds(v)
	case 'b':
		text = unit.Bitrate(v).String()
	case 'k':
		if v < 1000 {
			v = math.Round(v)
		}

		text = strings.Replace(unit.ScaleOf("bytes", v).Text(v), "bytes", "B", 1)
	case 'r':
		text = unit.PacketRate(v).String()
	case 'm':
		text = unit.Times(v)
	case 'g':
		digits, _ := to.Precision()
		text = unit.Significant(v, cmp.Or(digits, 3))
	default:
		text = fmt.Sprintf(fmt.FormatString(to, verb), v)
	}

	io.WriteString(to, text)
}

// String returns "core 0" for cpu0.
func (c Core) String() string { return "core " + strings.TrimPrefix(c.Name, "cpu") }

// seen returns a fact about the load, measured by its ends.
var seen = place{}.fact
