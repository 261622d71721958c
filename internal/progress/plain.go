package progress

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Plain writes one line per trial, and one for each thing that a person would want to know: warnings, the
// lab, and the two ends of the run. It is what a log file or a pipe gets.
func Plain(w io.Writer) Sink { return &plainSink{w: w} }

type plainSink struct {
	w io.Writer

	mu     sync.Mutex
	view   view  // under mu
	err    error // under mu: the first that occurred
	closed bool  // under mu
}

func (s *plainSink) Event(e record.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.view.take(e)
	line := plainLine(e, &s.view)
	if line == "" || s.err != nil {
		return
	}
	_, s.err = io.WriteString(s.w, line+"\n")
}

func (s *plainSink) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.err
}

// plainLine is the line of an event that the view has already taken, or "".
func plainLine(e record.Event, v *view) string {
	text := clean(e.Text)
	switch e.Event {
	case RunStarted:
		return startedLine(v)
	case Lab:
		return "lab: " + text
	case Warning:
		return "warning: " + text
	case TrialEnded:
		return trialLine(v)
	case RunEnded:
		line := "run " + v.run + " " + clean(e.Status)
		if text != "" {
			line += ": " + text
		}
		return line
	}
	return ""
}

func startedLine(v *view) string {
	parts := []string{"run " + v.run}
	if v.plan != "" {
		parts = append(parts, "plan "+v.plan)
	}
	if v.total > 0 {
		parts = append(parts, fmt.Sprintf("%d trials", v.total))
	}
	if left := v.left(v.at); left > 0 {
		parts = append(parts, "about "+unit.Seconds(left))
	}
	return strings.Join(parts, ", ")
}

func trialLine(v *view) string {
	r := v.last[len(v.last)-1]
	where := fmt.Sprintf("%d", r.index)
	if v.total > 0 {
		where = fmt.Sprintf("%*d/%d", len(fmt.Sprint(v.total)), r.index, v.total)
	}
	line := fmt.Sprintf("[%s] %s: %s", where, r.label, r.outcome())
	if left := v.left(v.at); left >= time.Second && r.index < v.total {
		line += ", " + unit.Seconds(left) + " left"
	}
	return line
}

// outcome is the result of a trial in words.
func (r result) outcome() string {
	if r.failed {
		if r.why == "" {
			return "failed"
		}
		return "failed: " + r.why
	}
	numbers := r.numbers()
	if len(numbers) == 0 {
		return r.status
	}
	return strings.Join(numbers, ", ")
}

// numbers are the quantities a trial ended with.
func (r result) numbers() []string {
	var n []string
	if r.rate > 0 {
		n = append(n, unit.Bitrate(r.rate).String())
	}
	if r.pps > 0 {
		n = append(n, unit.PacketRate(r.pps).String())
	}
	if r.rtt > 0 {
		n = append(n, "rtt "+unit.Nanoseconds(float64(r.rtt)))
	}
	return n
}

// since is the time between two moments, never negative.
func since(from, to time.Time) time.Duration {
	if from.IsZero() || to.Before(from) {
		return 0
	}
	return to.Sub(from)
}
