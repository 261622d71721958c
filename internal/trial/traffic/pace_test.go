package traffic

import (
	"testing"
	"time"
)

// TestALateSenderSaysHowMuchItSendsAtOnce: at a rate a batch is small, but what a late wake-up left undone
// goes out back to back: of 200 Mbit/s up to 10 ms, 250 kB, where the bucket of a policer at that rate holds
// 128 KiB.
func TestALateSenderSaysHowMuchItSendsAtOnce(t *testing.T) {
	const rate, payload = 200e6, 1472
	for name, tt := range map[string]struct {
		late time.Duration
		want float64 // bytes
	}{
		"in time":  {0, 3 * payload},
		"5 ms":     {5 * time.Millisecond, 125e3},
		"a second": {time.Second, 250e3}, // what is older is given up
	} {
		p := NewPace(rate, payload)
		p.Begin(0)
		now := int64(0)
		for sent := 0; sent < 100; {
			n, wake := p.Due(now)
			if n == 0 {
				now = wake
				continue
			}

			p.Took(n)
			sent += n
		}

		if got := float64(p.Most() * payload); got > 3*payload {
			t.Errorf("%s: %g bytes at once before it was late", name, got)
		}

		now += int64(tt.late)
		for n, _ := p.Due(now); n > 0; n, _ = p.Due(now) {
			p.Took(n)
		}

		if got := float64(p.Most() * payload); got > tt.want*1.05+payload || got < tt.want*.9-3*payload {
			t.Errorf("%s: %g bytes at once, want about %g", name, got, tt.want)
		}
	}
}
