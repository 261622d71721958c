package frames

import (
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// TestSinkThatWokeLateLooksFirst: a sink that had no CPU until long after the senders' end leaves only when
// it has seen that nothing comes any more.
func TestSinkThatWokeLateLooksFirst(t *testing.T) {
	now := traffic.Monotonic()
	ph := &traffic.Phases{
		Window:  record.Window{Stop: now + int64(time.Minute)},
		Senders: now - int64(time.Second),
	}
	var looks, n int64
	sink := xdpSink{func() (int64, error) {
		looks++
		n = min(looks, 5)
		return n, nil
	}}
	if err := sink.Run(ph); err != nil || n != 5 || looks < 6 {
		t.Errorf("left after %d looks that saw %d frames (%v), want all 5, and one look that saw no more",
			looks, n, err)
	}
}
