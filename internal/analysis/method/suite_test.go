package method

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func TestLatencyGoesThroughItsShares(t *testing.T) {
	var got []float64
	var history []Trial
	for {
		s, more := Latency(1000, time.Second, 2, history)
		if !more {
			break
		}

		got = append(got, s.Load)
		history = append(history, Trial{TrialInput: record.TrialInput{Load: s.Load, Duration: s.Duration}})
	}

	diff := cmp.Diff([]float64{100, 500, 900, 1000, 100, 500, 900, 1000}, got)
	if diff != "" {
		t.Errorf("loads (-want +got):\n%s", diff)
	}
}

func TestFrameLossEndsAfterTwoCleanTrials(t *testing.T) {
	for name, c := range map[string]struct {
		capacity float64
		want     []float64
	}{
		"half":    {500, []float64{1000, 900, 800, 700, 600, 500, 400}},
		"all":     {2000, []float64{1000, 900}},
		"nothing": {0, []float64{1000, 900, 800, 700, 600, 500, 400, 300, 200, 100}},
	} {
		for repeats := 1; repeats <= 2; repeats++ {
			var got, want []float64
			var history []Trial
			for {
				s, more := FrameLoss(1000, time.Second, repeats, history)
				if !more {
					break
				}

				load := math.Round(s.Load)
				got = append(got, load)
				history = append(history, Trial{
					TrialInput: record.TrialInput{Load: load, Duration: s.Duration},
					Loss:       max(0, 1-c.capacity/load),
				})
			}

			for range repeats {
				want = append(want, c.want...)
			}

			diff := cmp.Diff(want, got)
			if diff != "" {
				t.Errorf("%s, %d repeats (-want +got):\n%s", name, repeats, diff)
			}
		}
	}
}

// A device with a buffer forwards at its rate and holds what comes faster.
func TestBackToBackFindsTheBuffer(t *testing.T) {
	const greatest, capacity, longest = 1e6, 4e5, 2 * time.Second
	for name, c := range map[string]struct {
		buffer  float64 // frames
		burst   time.Duration
		limited bool
	}{
		"60,000 frames": {6e4, 100 * time.Millisecond, true},
		"3,000 frames":  {3e3, 5 * time.Millisecond, true},
		"endless":       {1e9, longest, false},
	} {
		const repeats = 3
		var history []Trial
		for {
			s, more := BackToBack(greatest, longest, repeats, history)
			if !more {
				break
			}

			frames := s.Load * s.Duration.Seconds()
			held := s.Duration.Seconds() * (greatest - capacity)
			history = append(history, Trial{
				TrialInput: record.TrialInput{Load: s.Load, Duration: s.Duration},
				Loss:       max(0, held-c.buffer) / frames,
			})
			if len(history) > 60 {
				t.Fatalf("%s: the test does not end", name)
			}
		}

		got, rest := Bursts(longest, history)
		if len(got) != repeats || len(rest) != 0 {
			t.Fatalf("%s: got %d bursts and %d trials left, want %d", name, len(got), len(rest), repeats)
		}

		for _, b := range got {
			found := history[b.Index].Duration
			if b.Limited != c.limited || float64(found) > float64(c.burst)*1.001 ||
				float64(found)*burstWidth < float64(c.burst)*.999 {
				t.Errorf("%s: got %s, limited %v, want %s, %v", name, found, b.Limited, c.burst, c.limited)
			}
		}
	}

	lossy := []Trial{}
	for {
		s, more := BackToBack(greatest, longest, 1, lossy)
		if !more {
			break
		}

		lossy = append(lossy, Trial{
			TrialInput: record.TrialInput{Load: s.Load, Duration: s.Duration},
			Loss:       .5,
		})
	}

	if got, _ := Bursts(longest, lossy); len(got) != 1 || got[0].Index != -1 || !got[0].Limited {
		t.Errorf("got %v of a device that always loses, want no burst", got)
	}
}
