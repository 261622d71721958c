package labtest

import (
	"context"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// ReadPlan parses a plan and shortens its durations, so that a campaign with fakes takes milliseconds per
// row. The minimum durations in plans are meant for real traffic.
func ReadPlan(t testing.TB, text string, v plan.Vocabulary) *plan.Plan {
	t.Helper()
	p, err := plan.Read("test.yaml", []byte(text), v, nil)
	must(t, err)
	m := &p.Design.Method
	m.Duration = 10 * time.Millisecond
	m.Warmup = 0
	m.Cooldown = 0
	m.Idle = 5 * time.Millisecond
	p.Design.Measure.ProbeInterval = time.Millisecond
	return p
}

// Trials is an in-memory store of trials.
type Trials []record.Trial

// AppendTrial implements trial.Store.
func (s *Trials) AppendTrial(_ context.Context, t record.Trial) error {
	*s = append(*s, t)
	return nil
}
