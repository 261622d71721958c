package progress

import (
	"fmt"
	"io"
	"strings"
)

// picture says what happens to the repainted lines.
type picture int

const (
	keepPicture picture = iota // draw them again
	dropPicture                // remove them
)

// paint writes the lines that stay and then the picture, in one write, with the cursor at the start of the
// line below. Nothing but paint writes to the terminal.
func (s *live) paint(what picture) {
	width, height := s.size()
	k := s.base
	// The last column stays free: writing there makes some terminals wrap.
	k.width, k.height = max(1, width-1), height

	s.mu.Lock()
	above := s.above
	s.above = nil
	var lines []line
	// While a human is asked for something the picture is away: what is typed would move it.
	if what == keepPicture && s.view.step == "" && s.view.run != "" {
		lines = s.view.frame(s.now(), k)
	}
	s.mu.Unlock()

	s.paintMu.Lock()
	defer s.paintMu.Unlock()
	text, columns := k.compose(above, lines)
	if s.err != nil || len(above) == 0 && text == s.last {
		return
	}
	_, s.err = io.WriteString(s.w, rewind(s.painted, width)+text+"\x1b[J")
	s.painted, s.last = columns, k.picture(lines)
}

// compose renders the lines that stay, whole even where they wrap, and the picture's lines cut to the
// width, whose columns it returns.
func (k look) compose(above, lines []line) (string, []int) {
	var b strings.Builder
	wide := k
	wide.width = 1 << 20
	for _, l := range above {
		text, _ := wide.draw(l)
		b.WriteString(text + "\x1b[K\n")
	}
	b.WriteString(k.picture(lines))
	var cols []int
	for _, l := range lines {
		_, n := k.draw(l)
		cols = append(cols, n)
	}
	return b.String(), cols
}

func (k look) picture(lines []line) string {
	var b strings.Builder
	for _, l := range lines {
		text, _ := k.draw(l)
		b.WriteString(text + "\x1b[K\n")
	}
	return b.String()
}

// rewind moves the cursor to the first line of the last picture. Where the terminal has become narrower
// since, its lines have been wrapped and take more room.
func rewind(columns []int, width int) string {
	rows := 0
	for _, n := range columns {
		rows += max(1, (n+width-1)/max(1, width))
	}
	if rows == 0 {
		return "\r"
	}
	return fmt.Sprintf("\r\x1b[%dA", rows)
}
