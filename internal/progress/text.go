package progress

import (
	"math"
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// style is an SGR code; "" means plain text.
type style string

const (
	plain  style = ""
	bold   style = "1"
	faint  style = "2"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
)

// span is a piece of text with a style. A line consists of spans.
type span struct {
	text  string
	style style
}

type line []span

// add returns the line with a span appended.
func (l line) add(s style, text string) line { return append(l, span{text, s}) }

// look describes the capabilities and size of a terminal.
type look struct {
	colour  bool
	unicode bool // block characters can be shown; otherwise only ASCII
	width   int  // columns
	height  int  // lines
}

// draw renders a line within width columns and returns the number of columns used. It ends a line that is
// too long with an ellipsis.
func (k look) draw(l line) (text string, taken int) {
	whole := 0
	shown := make(line, len(l))
	for i, s := range l {
		if !k.unicode {
			s.text = toASCII(s.text)
		}

		shown[i] = s
		whole += columns(s.text)
	}

	room := k.width
	if whole > k.width {
		room--
	}

	var b strings.Builder
	for _, s := range shown {
		t, n := cut(s.text, room-taken)
		if n == 0 {
			continue
		}

		taken += n
		if k.colour && s.style != plain {
			b.WriteString("\x1b[" + string(s.style) + "m" + t + "\x1b[0m")
		} else {
			b.WriteString(t)
		}
	}

	if whole > k.width {
		b.WriteString(k.ellipsis())
		taken++
	}

	return b.String(), taken
}

// ellipsis marks where a line was cut.
func (k look) ellipsis() string {
	if k.unicode {
		return "…"
	}
	return "~"
}

// toASCII replaces characters that a terminal without UTF-8 cannot show.
func toASCII(text string) string {
	text = strings.NewReplacer("µ", "u", "–", "-", "°", " ", "±", "+-", "·", ",",
		"…", "~").Replace(text)
	return strings.Map(func(r rune) rune {
		if r > unicode.MaxASCII {
			return '?'
		}
		return r
	}, text)
}

func cut(text string, width int) (string, int) {
	n := 0
	for i, r := range text {
		w := runeWidth(r)
		if n+w > width {
			return text[:i], n
		}

		n += w
	}
	return text, n
}

func columns(text string) int {
	_, n := cut(text, math.MaxInt)
	return n
}

func pad(text string, width int) string {
	n := columns(text)
	if n < width {
		return text + strings.Repeat(" ", width-n)
	}
	return text
}

// runeWidth returns the number of columns of a character on a terminal. A wrong width only shifts the right
// edge by a column.
func runeWidth(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}

	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// Levels of a sparkline, from empty to full.
var (
	blocks = []rune("▁▂▃▄▅▆▇█")
	ascii  = []rune("_.-=+*#@")
)

// spark draws the last width values as one character each. The scale goes from 0 to top, or to the largest
// value if that is larger.
func (k look) spark(values []float64, top float64, width int) string {
	over := len(values) - width
	if over > 0 {
		values = values[over:]
	}

	for _, v := range values {
		top = max(top, v)
	}

	levels := blocks
	if !k.unicode {
		levels = ascii
	}

	var b strings.Builder
	for _, v := range values {
		level := 0
		if top > 0 && v > 0 {
			level = min(int(v/top*float64(len(levels))), len(levels)-1)
		}

		b.WriteRune(levels[level])
	}

	return b.String()
}

// bar draws a share (0 to 1) as a bar of width characters.
func (k look) bar(share float64, width int) string {
	if !(share > 0) {
		share = 0
	}

	full := int(math.Round(min(share, 1) * float64(width)))
	on, off := "█", "░"
	if !k.unicode {
		on, off = "#", "."
	}

	return strings.Repeat(on, full) + strings.Repeat(off, width-full)
}

// separator returns the text between facts on a line.
func (k look) separator() string {
	if k.unicode {
		return " · "
	}
	return ", "
}
