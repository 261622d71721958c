package trial

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

type ready struct {
	window record.Window
	err    error
}

// start has n engines say that they are ready.
func start(ctx context.Context, c *conductor, n int) []chan ready {
	out := make([]chan ready, n)
	for i := range out {
		out[i] = make(chan ready, 1)
		go func() {
			w, err := c.Ready(ctx)
			out[i] <- ready{w, err}
		}()
	}
	return out
}

// TestNobodyStartsBeforeAllAreReady: the timeline is fixed by the last.
func TestNobodyStartsBeforeAllAreReady(t *testing.T) {
	c := newConductor(2, 300*time.Millisecond, time.Second)
	fixed := 0
	c.fixed = func(record.Window) error { fixed++; return nil }
	first := start(context.Background(), c, 1)[0]
	select {
	case r := <-first:
		t.Fatalf("one of two is ready: got %+v, want it to wait", r)
	case <-time.After(30 * time.Millisecond):
	}

	before := host.Monotonic()
	second := <-start(context.Background(), c, 1)[0]
	got := <-first
	if got != second || got.err != nil {
		t.Errorf("got timelines %+v and %+v, want one and the same", got, second)
	}

	w := got.window
	if w.Begin < before+int64(lead) || w.Start-w.Begin != int64(300*time.Millisecond) ||
		w.End-w.Start != int64(time.Second) || w.Stop <= w.End {
		t.Errorf("timeline: got %+v at %d, want begin %s ahead, 300 ms of warm-up, 1 s of window and a "+
			"later stop", w, before, lead)
	}

	if fixed != 1 {
		t.Errorf("timeline: fixed %d times, want once", fixed)
	}
}

func TestAnEngineThatNeverComesIsNotWaitedForLonger(t *testing.T) {
	cause := errors.New("the other one died")
	ctx, cancel := context.WithCancelCause(context.Background())
	waiting := start(ctx, newConductor(2, 0, time.Second), 1)[0]
	cancel(cause)
	r := <-waiting
	if !errors.Is(r.err, cause) || r.window != (record.Window{}) {
		t.Errorf("got %+v, want no timeline and the cause", r)
	}
}

func TestATimelineThatCannotBeFixedIsEveryonesError(t *testing.T) {
	c := newConductor(3, 0, time.Second)
	c.fixed = func(record.Window) error { return errors.New("no watch") }
	for i, ch := range start(context.Background(), c, 3) {
		r := <-ch
		if r.err == nil || r.err.Error() != "no watch" {
			t.Errorf("engine %d: got %v, want the watch's error", i, r.err)
		}
	}
}
