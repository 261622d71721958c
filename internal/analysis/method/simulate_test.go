package method

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Device simulates a device under test, with which a search can be tested. It forwards frames up to a
// capacity that varies from trial to trial. In some seconds, it also loses a share of the frames at any load.
type Device struct {
	Capacity float64 // frames per second
	Jitter   float64 // standard deviation ÷ mean of the capacity of trials
	Bursts   float64 // share of seconds with a burst of losses
	Burst    float64 // loss ratio in such a second
}

// Measure simulates one trial. Its duration is rounded down to whole seconds, at least one.
func (d Device) Measure(s record.TrialInput, r *rand.Rand) Trial {
	capacity := d.Capacity * (1 + d.Jitter*r.NormFloat64())
	seconds := max(int(s.Duration/time.Second), 1)
	burst := 0.0
	for range seconds {
		if d.Bursts > 0 && r.Float64() < d.Bursts {
			burst += d.Burst / float64(seconds)
		}
	}

	sent := math.Round(s.Load * s.Duration.Seconds())
	arrived := math.Round(min(sent, math.Floor(max(capacity, 0)*s.Duration.Seconds())) * (1 - burst))
	return Trial{TrialInput: s, Loss: max(1-arrived/sent, 0)}
}

// Simulate runs a whole search on a device. Each trial takes overhead longer than its duration. If counted is
// set, the effective duration includes the overhead.
func (c Config) Simulate(d Device, r *rand.Rand, overhead time.Duration, counted bool) (trials []Trial,
	took time.Duration, err error) {
	for {
		s, more, err := c.Next(trials)
		if err != nil || !more {
			return trials, took, err
		}

		t := d.Measure(s, r)
		if counted {
			t.Effective = s.Duration + overhead
		}

		trials = append(trials, t)
		took += s.Duration + overhead
	}
}
