package progress

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// JSON returns a Sink that writes each event as one line of JSON, as soon as the event happens.
func JSON(w io.Writer) Sink {
	return &lineSink{
		w: w,
		line: func(e record.Event) (string, error) {
			b, err := json.Marshal(e)
			return string(b), err
		},
	}
}

// Plain returns a Sink that writes lines for log files and pipes: one for each trial, warning and lab event,
// and one each for the beginning and the end of the run. It names the cells with factors.
func Plain(w io.Writer, factors *factor.Catalogue) Sink {
	v := &view{names: labeller{factors: factors}}
	return &lineSink{
		w: w,
		line: func(e record.Event) (string, error) {
			v.take(e)
			return plainLine(e, v), nil
		},
	}
}

// Quiet returns a Sink that writes only the warnings of a run, one per line.
func Quiet(w io.Writer) Sink {
	return &lineSink{
		w: w,
		line: func(e record.Event) (string, error) {
			if e.Event == Warning {
				return "warning: " + clean(e.Text), nil
			}
			return "", nil
		},
	}
}

// lineSink writes the result of its function line for each event, unless the result is empty. It uses one
// write per event, so that readers of a pipe see complete lines.
type lineSink struct {
	w io.Writer

	mu     sync.Mutex
	line   func(record.Event) (string, error) // protected by mu
	err    error                              // protected by mu: first write error
	closed bool                               // protected by mu
}

func (s *lineSink) Event(e record.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.err != nil {
		return
	}

	text, err := s.line(e)
	if err == nil && text != "" {
		_, err = io.WriteString(s.w, text+"\n")
	}

	s.err = err
}

func (s *lineSink) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.err
}

// plainLine returns the line for an event, or "". The view has already processed the event.
func plainLine(e record.Event, v *view) string {
	text := clean(e.Text)
	switch e.Event {
	case RunStarted:
		parts := []string{"run " + v.run}
		if v.plan != "" {
			parts = append(parts, "plan "+v.plan)
		}

		if v.total > 0 {
			parts = append(parts, fmt.Sprintf("%d trials", v.total))
		}

		left := v.left(v.at)
		if left > 0 {
			parts = append(parts, "about "+unit.Seconds(left))
		}

		return strings.Join(parts, ", ")
	case Lab:
		return "lab: " + text
	case Warning:
		return "warning: " + text
	case Phase:
		return text // reported during long steps before the first trial
	case TrialEnded:
		r := v.last[len(v.last)-1]
		where := fmt.Sprint(r.index)
		if v.total > 0 {
			where = fmt.Sprintf("%*d/%d", len(fmt.Sprint(v.total)), r.index, v.total)
		}

		line := fmt.Sprintf("[%s] %s: %s", where, r.label, r.outcome())
		left := v.left(v.at)
		if left >= time.Second && r.index < v.total {
			line += ", " + unit.Seconds(left) + " left"
		}

		return line
	case RunEnded:
		return strings.TrimSuffix("run "+v.run+" "+clean(e.Status)+": "+text, ": ")
	}
	return ""
}
