package progress

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// repaint is the interval between pictures. It allows at most 8 per second, because drawing takes CPU time
// from the measurement.
const repaint = 125 * time.Millisecond

// Live returns a Sink that repaints a few lines at the bottom of a terminal. The terminal stays in its normal
// mode: Ctrl-C sends a signal, the scrollback is kept, and a killed program leaves nothing to repair.
// Warnings and failures are printed above the live lines and remain in the scrollback. The live lines are
// hidden while the user is asked to do something. If w is not a terminal, or TERM is empty or dumb, Live
// returns the Sink of Plain. The Sink respects NO_COLOR (https://no-color.org).
func Live(w *os.File, factors *factor.Catalogue) Sink {
	fd := int(w.Fd())
	if !term.IsTerminal(fd) || slices.Contains([]string{"", "dumb"}, os.Getenv("TERM")) {
		return Plain(w, factors)
	}

	base := look{
		colour:  os.Getenv("NO_COLOR") == "",
		unicode: utf8Locale(os.Getenv("LC_ALL"), os.Getenv("LC_CTYPE"), os.Getenv("LANG")),
	}
	size := func() (int, int) {
		width, height, err := term.GetSize(fd)
		if err != nil || width <= 0 || height <= 0 {
			return 80, 24
		}
		return width, height
	}
	ticker := time.NewTicker(repaint)
	s := newLive(w, factors, base, size, time.Now)
	s.start(ticker.C, ticker.Stop)
	return s
}

// utf8Locale reports whether the first non-empty setting selects UTF-8. The settings are in the order in
// which POSIX applies them.
func utf8Locale(settings ...string) bool {
	first := strings.ToLower(cmp.Or(settings...))
	return strings.Contains(first, "utf-8") || strings.Contains(first, "utf8")
}

type live struct {
	w    io.Writer
	base look
	size func() (width, height int)
	now  func() time.Time
	stop chan struct{}
	done chan struct{}

	mu     sync.Mutex
	view   view   // protected by mu
	above  []line // protected by mu: lines to print permanently above the picture
	closed bool   // protected by mu

	paintMu sync.Mutex
	painted []int  // protected by paintMu: widths of the lines of the last picture
	last    string // protected by paintMu: the last picture, to skip identical ones
	err     error  // protected by paintMu: first write error
}

func newLive(w io.Writer, factors *factor.Catalogue, base look, size func() (int, int),
	now func() time.Time) *live {
	return &live{
		w:    w,
		base: base,
		size: size,
		now:  now,
		view: view{names: labeller{factors: factors}},
		stop: make(chan struct{}),
		done: make(chan struct{}),
	}
}

// start repaints at every tick until Close.
func (s *live) start(ticks <-chan time.Time, stopTicks func()) {
	go func() {
		defer close(s.done)
		defer stopTicks()
		for {
			select {
			case <-ticks:
				s.paint(keepPicture)
			case <-s.stop:
				return
			}
		}
	}()
}

func (s *live) Event(e record.Event) {
	s.take(e)
	if e.Event == Step {
		s.paint(dropPicture) // immediately, because the caller prints the prompt next
	}
}

func (s *live) take(e record.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}

	s.view.take(e)
	l := permanent(e, &s.view)
	if l != nil {
		s.above = append(s.above, l)
	}
}

// permanent returns the line to print permanently for an event, or nil.
func permanent(e record.Event, v *view) line {
	switch e.Event {
	case Warning:
		return line{}.add(yellow, "warning: ").add(plain, clean(e.Text))
	case TrialEnded:
		r := v.last[len(v.last)-1]
		if r.failed {
			return line{}.add(red, "failed: ").add(plain, r.label+": "+r.why)
		}
	}
	return nil
}

// Close draws the last picture, removes it, and prints a line about the end of the run below the permanent
// lines. It prints no such line for a complete run, because the result that follows says the same.
func (s *live) Close() error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	v := &s.view
	complete := v.ended == record.RunDone && v.done() == v.total
	if first && v.ended != "" && !complete {
		s.above = append(s.above, v.endLine(s.now()))
	}

	s.mu.Unlock()
	if first {
		close(s.stop)
		<-s.done
		s.paint(dropPicture)
	}

	s.paintMu.Lock()
	defer s.paintMu.Unlock()
	return s.err
}

// endLine summarises the run in one line.
func (v *view) endLine(now time.Time) line {
	l := line{}.add(bold, v.run+" "+v.ended)
	if v.total > 0 {
		l = l.add(plain, fmt.Sprintf(": %d of %d trials", v.done(), v.total))
	}

	took := since(v.started, now)
	if took > 0 {
		l = l.add(plain, " in "+took.Round(time.Second).String())
	}

	return l
}

// These values are arguments of paint. They say whether to draw the repainted lines again or remove them.
const keepPicture, dropPicture = true, false

// paint writes the permanent lines and then the picture in a single write, leaving the cursor at the start
// of the line below. Nothing else writes to the terminal.
func (s *live) paint(keep bool) {
	width, height := s.size()
	k := s.base
	// Do not use the last column: some terminals wrap when it is written.
	k.width = max(1, width-1)
	k.height = height

	s.mu.Lock()
	above := s.above
	s.above = nil
	var lines []line
	// Hide the picture while the user is asked for something, because typing would shift it.
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

	k.width = 1 << 20 // permanent lines are not cut, even if they wrap
	stays, _ := k.drawAll(above)
	_, s.err = io.WriteString(s.w, rewind(s.painted, width)+stays+picture+"\x1b[J")
	s.painted, s.last = columns, picture
}

// drawAll renders lines, each cut to the width, and returns the number of columns of each.
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

// rewind returns the sequence that moves the cursor to the first line of the last picture. If the terminal
// has become narrower, the lines of the picture have wrapped and occupy more rows.
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
