package main

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/method"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// device simulates a device under test. It forwards frames up to a capacity that varies from trial to trial.
// In some seconds, it also loses a share of the frames at any load. The tests of package method have the same
// one.
type device struct {
	capacity float64 // frames per second
	jitter   float64 // standard deviation ÷ mean of the capacity of trials
	bursts   float64 // share of seconds with a burst of losses
	burst    float64 // loss ratio in such a second
}

// measure simulates one trial. Its duration is rounded down to whole seconds, at least one.
func (d device) measure(s record.TrialInput, r *rand.Rand) method.Trial {
	capacity := d.capacity * (1 + d.jitter*r.NormFloat64())
	seconds := max(int(s.Duration/time.Second), 1)
	burst := 0.0
	for range seconds {
		if d.bursts > 0 && r.Float64() < d.bursts {
			burst += d.burst / float64(seconds)
		}
	}

	sent := math.Round(s.Load * s.Duration.Seconds())
	arrived := math.Round(min(sent, math.Floor(max(capacity, 0)*s.Duration.Seconds())) * (1 - burst))
	return method.Trial{TrialInput: s, Loss: max(1-arrived/sent, 0)}
}

// simulate runs a whole search on a device. Each trial takes overhead longer than its duration. If counted is
// set, the effective duration includes the overhead.
func simulate(c method.Config, d device, r *rand.Rand, overhead time.Duration, counted bool) (
	trials []method.Trial, took time.Duration, err error) {
	for {
		s, more, err := c.Next(trials)
		if err != nil || !more {
			return trials, took, err
		}

		t := d.measure(s, r)
		if counted {
			t.Effective = s.Duration + overhead
		}

		trials = append(trials, t)
		took += s.Duration + overhead
	}
}
