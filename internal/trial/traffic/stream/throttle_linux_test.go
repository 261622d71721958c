package stream

import (
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// TestThrottleSleepsForWhatItMoved: 10 kB at 1 MB/s are due in ten milliseconds, not before; nothing is
// waited for without a rate or once the window is over.
func TestThrottleSleepsForWhatItMoved(t *testing.T) {
	p := &traffic.Phases{}
	p.End = traffic.Monotonic() + int64(10*time.Second)
	held := &throttle{perNs: 1e6 / 1e9, due: traffic.Monotonic()}
	begin := held.due
	held.wait(p, 10_000)
	took := time.Duration(traffic.Monotonic() - begin)
	if took < 10*time.Millisecond {
		t.Errorf("10 kB at 1 MB/s: got %v, want 10ms or more", took)
	}

	p.End = traffic.Monotonic()
	due := held.due
	if held.wait(p, 1e9); held.due != due {
		t.Error("beyond the window: got a later time, want none")
	}

	(*throttle)(nil).wait(p, 1e9)
}

func TestThrottleShares(t *testing.T) {
	b := make([]byte, 1<<20)
	for _, tt := range []struct {
		held *throttle
		want int
	}{
		{nil, len(b)}, {&throttle{perNs: 1e6 / 1e9}, 5000}, {&throttle{perNs: 1e3 / 1e9}, minStep},
		{(&throttle{perNs: 1e6 / 1e9}).of(3), 15000}, {&throttle{perNs: 1e12 / 1e9}, len(b)},
		{(*throttle)(nil).of(3), len(b)},
	} {
		got := len(tt.held.share(b))
		if got != tt.want {
			t.Errorf("share of %+v: got %d bytes, want %d", tt.held, got, tt.want)
		}
	}
}
