package knob

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

const verbHog, verbTighten = "fault/cpu_hog", "fault/cpu_tightening"

// hog keeps a core busy until ctx is cancelled.
func hog(ctx context.Context, s host.Session) error {
	if err := s.Recv(nil); err != nil {
		return err
	}

	if err := s.Send(struct{}{}); err != nil {
		return err
	}

	for ctx.Err() == nil {
		for n := 1; n < 1<<20; n++ { // takes about 1 ms
			if n*n == -1 {
				return errors.New("arithmetic of this CPU is wrong")
			}
		}
	}

	return nil
}

// tightening describes how to lower the CPU quota of a lab's guests in steps.
type tightening struct {
	Lab   string `json:"lab"`
	Steps State  `json:"steps"`
}

const (
	tighteningStep = 2 * time.Second
	tighteningLook = 100 * time.Millisecond
	// Guests are busy if they use at least busyShare of the quota. They are idle again after calmLooks
	// consecutive checks in which they use less.
	busyShare = 0.5
	calmLooks = 5
)

// tighten lowers the quota in steps as soon as the guests are busy. It starts over when they are idle, so
// that every trial includes all steps.
func tighten(ctx context.Context, s host.Session, t tightening) error {
	var steps []kernel.Quota
	for part := range strings.SplitSeq(t.Steps, ",") {
		q, err := parsePercent(part)
		if err != nil {
			return fmt.Errorf("read steps %s: %w", t.Steps, err)
		}

		steps = append(steps, q)
	}

	if err := s.Send(struct{}{}); err != nil {
		return err
	}

	step := 0
	calm := 0
	since := time.Time{}
	last, err := kernel.GuestCPUTime(t.Lab)
	for at := time.Now(); err == nil && host.Pause(ctx, tighteningLook) == nil; {
		var used time.Duration
		if used, err = kernel.GuestCPUTime(t.Lab); err != nil {
			break
		}

		now := time.Now()
		busy := float64(used-last) > busyShare*float64(steps[step])/1e4*float64(now.Sub(at))
		last, at = used, now
		next := step
		switch {
		case busy && since.IsZero():
			since, calm = now, 0
		case busy:
			next = min(int(now.Sub(since)/tighteningStep), len(steps)-1)
			calm = 0
		case !since.IsZero():
			if calm++; calm >= calmLooks {
				next = 0
				since = time.Time{}
			}
		}

		if next != step {
			step = next
			err = kernel.SetCPUQuota(t.Lab, steps[step])
		}
	}

	if ctx.Err() != nil {
		return nil
	}

	return err
}
