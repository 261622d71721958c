package latency

import (
	"slices"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func TestUserStampsAreAllOrNothing(t *testing.T) {
	r := probeReport{Probes: []probe{
		{Sent: 1, User: 100, TX: 10, RX: 90, Residence: 30},
		{Sent: 2, User: 200, RX: 90, Residence: 30},
		{Sent: 3},
	}}
	got := r.latency(record.Load{Interval: time.Millisecond})
	if got.Stamps != "user" || !slices.Equal(got.RTT, []int64{100, 200, -1}) || len(got.Caveats) != 1 {
		t.Errorf("one unstamped probe: %q %v %v, want user [100 200 -1] and a caveat", got.Stamps, got.RTT,
			got.Caveats)
	}
	r.Probes[1].TX = 20
	if got = r.latency(record.Load{}); got.Stamps != "kernel" || !slices.Equal(got.RTT, []int64{50, 40, -1}) {
		t.Errorf("all stamped: %q %v, want kernel [50 40 -1]", got.Stamps, got.RTT)
	}
}
