package progress

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// screen emulates a terminal as far as the live view uses one: text, line feed, carriage return, cursor up,
// erase line, erase below, colours. Anything else is a fault.
type screen struct {
	width, height int
	rows          [][]rune // everything ever shown, scrollback included
	row, col      int
	colours       bool
	faults        []string
	writes        int
}

func newScreen(width, height int) *screen {
	return &screen{width: width, height: height, rows: [][]rune{nil}}
}

func (s *screen) Write(p []byte) (int, error) {
	s.writes++
	text := string(p)
	for len(text) > 0 {
		if rest, ok := strings.CutPrefix(text, "\x1b["); ok {
			end := strings.IndexFunc(rest, func(r rune) bool { return r >= '@' && r <= '~' })
			if end < 0 {
				s.faults = append(s.faults, "unfinished sequence")
				return len(p), nil
			}

			s.control(rest[:end], rest[end])
			text = rest[end+1:]
			continue
		}

		r, n := utf8.DecodeRuneInString(text)
		s.put(r)
		text = text[n:]
	}

	return len(p), nil
}

func (s *screen) control(arg string, verb byte) {
	switch verb {
	case 'm':
		s.colours = true
	case 'A':
		n, err := strconv.Atoi(arg)
		if err != nil || n < 1 || n > s.row || n >= s.height {
			s.faults = append(s.faults, fmt.Sprintf("cursor up %q at row %d", arg, s.row))
			n = min(n, s.row)
		}

		s.row -= n
	case 'K':
		s.rows[s.row] = s.rows[s.row][:min(s.col, len(s.rows[s.row]))]
	case 'J':
		s.rows[s.row] = s.rows[s.row][:min(s.col, len(s.rows[s.row]))]
		s.rows = s.rows[:s.row+1]
	default:
		s.faults = append(s.faults, fmt.Sprintf("sequence %q%c", arg, verb))
	}
}

func (s *screen) put(r rune) {
	switch r {
	case '\r':
		s.col = 0
		return
	case '\n':
		s.down()
		s.col = 0 // the terminal driver adds the carriage return
		return
	}

	if r < ' ' || r == 0x7f {
		s.faults = append(s.faults, fmt.Sprintf("control character %q", r))
		return
	}

	if s.col+runeWidth(r) > s.width {
		s.down()
		s.col = 0
	}

	line := s.rows[s.row]
	for len(line) <= s.col {
		line = append(line, ' ')
	}

	line[s.col] = r
	s.rows[s.row] = line
	s.col += runeWidth(r)
}

func (s *screen) down() {
	s.row++
	if s.row == len(s.rows) {
		s.rows = append(s.rows, nil)
	}
}

// text returns all that a reader sees, without blanks at line ends.
func (s *screen) text() string {
	var b strings.Builder
	for _, r := range s.rows {
		b.WriteString(strings.TrimRight(string(r), " ") + "\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}
