package traffic

import (
	"slices"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func TestOnlyABurstMayBeginLate(t *testing.T) {
	const ms = int64(time.Millisecond)
	tests := []struct {
		name                 string
		warmup, lasts, drain int64
		senders, slack       int64 // after the end
	}{
		{"a burst", 0, ms, 600 * ms, 250 * ms, 250 * ms},
		{"a burst that is waited for shortly", 0, ms, 100 * ms, 50 * ms, 50 * ms},
		{"no burst, with a warm-up", ms, ms, 600 * ms, 20 * ms, 0},
		{"no burst, as long as a plan's shortest window", 0, 100 * ms, 600 * ms, 20 * ms, 0},
		{"a burst nearly as long", 0, 99 * ms, 600 * ms, 250 * ms, 250 * ms},
	}
	for _, tt := range tests {
		w := record.Window{
			Begin: 5,
			Start: 5 + tt.warmup,
			End:   5 + tt.warmup + tt.lasts,
			Stop: 5 +
				tt.warmup + tt.lasts + tt.drain,
		}
		p := newPhases(w)
		got := p.Senders - p.End
		if got != tt.senders {
			t.Errorf("%s: senders stop %v after the end, want %v", tt.name, time.Duration(got),
				time.Duration(tt.senders))
		}

		if p.Slack != tt.slack {
			t.Errorf("%s: slack %v, want %v", tt.name, time.Duration(p.Slack), time.Duration(tt.slack))
		}
	}
}

func TestDealGivesEachFlowOnce(t *testing.T) {
	for n := range 9 {
		flows := make([]int, n)
		for i := range flows {
			flows[i] = 10 + i
		}

		var all []int
		shares := Deal(flows, 4)
		for _, h := range shares {
			if len(h) == 0 || len(h) > (n+3)/4 {
				t.Errorf("%d flows: a share of %d", n, len(h))
			}

			all = append(all, h...)
		}

		slices.Sort(all)
		if !slices.Equal(all, flows) || len(shares) > 4 {
			t.Errorf("%d flows: got %v", n, shares)
		}
	}
}
