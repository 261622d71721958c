package progress

import (
	"encoding/json"
	"io"
	"sync"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// JSON writes each event as one line of JSON, as soon as it happens.
func JSON(w io.Writer) Sink { return &jsonSink{w: w} }

type jsonSink struct {
	w io.Writer

	mu     sync.Mutex
	err    error // under mu: the first that occurred
	closed bool  // under mu
}

func (s *jsonSink) Event(e record.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.err != nil {
		return
	}
	line, err := json.Marshal(e)
	if err != nil {
		s.err = err
		return
	}
	// One write per event, so that a reader of a pipe sees whole lines.
	_, s.err = s.w.Write(append(line, '\n'))
}

func (s *jsonSink) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.err
}
