package diagnosis

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// say formats a sentence like fmt.Sprintf, and its float64 values by further verbs: %h a share in per cent,
// %n nanoseconds, %b bits per second, %k bytes, %r packets per second, %m a multiple, and %g three
// significant digits, or as many as its precision. Without values the sentence is returned unchanged.
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

// number is a value within a sentence.
type number float64

// Format writes the value for the verbs of say.
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
		text = bytesText(v)
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

// String names a core within a sentence: "core 0" for cpu0.
func (c Core) String() string { return "core " + strings.TrimPrefix(c.Name, "cpu") }

// seen returns a fact about the load, as measured by its ends.
func seen(metric string, value float64, text string, args ...any) Fact {
	return fact(metric, "", "", value, text, args...)
}
