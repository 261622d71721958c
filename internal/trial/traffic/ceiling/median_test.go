package ceiling

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/stream"
)

// windows is an engine whose loads bring what it is told, in bytes of a second: nothing, or that much,
// below zero only to be read late.
type windows struct {
	stream.Native
	bytes []int64
	taken int
}

func (w *windows) Offer(context.Context, traffic.End, traffic.End, record.Load,
	traffic.Conductor) (*record.Traffic, error) {
	n := w.bytes[w.taken]
	w.taken++
	t := &record.Traffic{
		Load:  record.Load{Protocol: "tcp", Duration: time.Second},
		Flows: []record.Flow{{ReceiverNs: 1e9, ReceivedBytes: max(n, -n)}},
	}
	if n < 0 {
		t.Ends = map[string]record.EndUsage{"far": {EdgeLateNs: int64(time.Second / 2)}}
	}

	return t, nil
}

// The median of three windows that say something is the ceiling, as it is of the trials that are compared
// with it; three that say nothing end it.
func TestMedianOfSeveralWindows(t *testing.T) {
	for _, tt := range []struct {
		bytes []int64
		want  float64 // bit/s
		note  string
		err   string
	}{
		{bytes: []int64{1000, 3000, 2000}, want: 16000},
		{bytes: []int64{3000, 1000, 2000}, want: 16000},
		{bytes: []int64{0, 1000, -9000, 2000, 1500}, want: 12000, note: "said nothing: 2"},
		{bytes: []int64{0, 0, 1000, 2000, 0}, want: 8000, note: "said nothing: 3"},
		{bytes: []int64{-9000, 0, 0}, err: "nothing arrived in any of three windows"},
		{
			bytes: []int64{0, -9000, -9000},
			err:   "the far end read its counts 500ms late at an edge of the window of 1s",
		},
	} {
		e := &windows{bytes: tt.bytes}
		c, err := look(t.Context(), e, traffic.End{}, traffic.End{}, Kind{Protocol: "tcp", Streams: 1},
			record.Load{})
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%v: got %v, want an error with %q", tt.bytes, err, tt.err)
			}
			continue
		}

		if err != nil || c.Value != tt.want || strings.Contains(c.Note, "windows") != (tt.note != "") ||
			!strings.Contains(c.Note, tt.note) || e.taken != len(tt.bytes) {
			t.Errorf("%v: got %+v and %v of %d windows, want %g bit/s of all and the note %q", tt.bytes, c,
				err, e.taken, tt.want, tt.note)
		}
	}
}
