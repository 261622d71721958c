package progress

import (
	"fmt"
	"io"
	"strings"
)

// What happens to the repainted lines: they are drawn again, or removed.
const keepPicture, dropPicture = true, false

// paint writes the lines that stay and then the picture, in one write, with the cursor at the start of the
// line below. Nothing but paint writes to the terminal.
func (s *live) paint(keep bool) {
	width, height := s.size()
	k := s.base
	// The last column stays free: writing there makes some terminals wrap.
	k.width, k.height = max(1, width-1), height

	s.mu.Lock()
	above := s.above
	s.above = nil
	var lines []line
	// While a human is asked for something the picture is away: what is typed would move it.
	if keep && s.view.step == "" && s.view.run != "" {
		lines = s.view.frame(s.now(), k)
	}
	s.mu.Unlock()

	s.paintMu.Lock()
	defer s.paintMu.Unlock()
	picture, columns := k.drawAll(lines)
	if s.err != nil || len(above) == 0 && picture == s.last {
		return
	}
	k.width = 1 << 20 // what stays is written whole, even where it wraps
	stays, _ := k.drawAll(above)
	_, s.err = io.WriteString(s.w, rewind(s.painted, width)+stays+picture+"\x1b[J")
	s.painted, s.last = columns, picture
}

// drawAll renders lines, each cut to the width, and tells how many columns each took.
func (k look) drawAll(lines []line) (string, []int) {
	var b strings.Builder
	var cols []int
	for _, l := range lines {
		text, n := k.draw(l)
		b.WriteString(text + "\x1b[K\n")
		cols = append(cols, n)
	}
	return b.String(), cols
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
