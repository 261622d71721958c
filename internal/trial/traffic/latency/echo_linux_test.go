package latency

import (
	"slices"
	"sync/atomic"
	"testing"
)

func TestUserStampsAreAllOrNothing(t *testing.T) {
	p := &prober{
		sent: make([]atomic.Int64, 3),
		answers: []answer{{at: 101, tx: 10, rx: 90, residence: 30},
			{at: 202, rx: 90, residence: 30}, {}},
	}
	for i := range p.sent {
		p.sent[i].Store(int64(i) + 1)
	}

	got := p.report()
	if got.Stamps != "user" || !slices.Equal(got.RTT, []int64{100, 200, -1}) || len(got.Caveats) != 1 {
		t.Errorf("one unstamped probe: %q %v %v, want user [100 200 -1] and a caveat", got.Stamps, got.RTT,
			got.Caveats)
	}

	p.answers[1].tx = 20
	if got = p.report(); got.Stamps != "kernel" || !slices.Equal(got.RTT, []int64{50, 40, -1}) {
		t.Errorf("all stamped: %q %v, want kernel [50 40 -1]", got.Stamps, got.RTT)
	}
}
