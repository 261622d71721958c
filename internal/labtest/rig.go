package labtest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// ReadPlan reads a plan and shortens its times, so that a campaign over fakes takes milliseconds per row:
// the file's own least durations are for real traffic.
func ReadPlan(t testing.TB, text string, v plan.Vocabulary) *plan.Plan {
	t.Helper()
	p, err := plan.Read("test.yaml", []byte(text), v, nil)
	must(t, err)
	m := &p.Design.Method
	m.Duration, m.Warmup, m.Cooldown, m.Idle = 10*time.Millisecond, 0, 0, 5*time.Millisecond
	p.Design.Measure.ProbeInterval = time.Millisecond
	return p
}

// Rig is a campaign over fakes. Its fields are set before Execute.
type Rig struct {
	Plan   *plan.Plan
	Labs   *Labs
	Prober traffic.Prober // nil: Prober{}
	Done   []record.Trial
	Marks  []record.Caveat
	Meter  *record.Meter
	Slack  time.Duration // 0: 2 s, fakes are quick
	Ask    func(ctx context.Context, s record.Step) error
	Begin  func(ctx context.Context, run record.Run) (trial.Store, error) // nil: Trials is the store

	Campaign *trial.Campaign // set by Execute
	Trials   Trials          // set by Execute, unless Begin is
	Outcome  trial.Outcome

	mu     sync.Mutex
	events []record.Event
}

// Trials is a store in memory.
type Trials []record.Trial

// AppendTrial implements trial.Store.
func (s *Trials) AppendTrial(_ context.Context, t record.Trial) error {
	*s = append(*s, t)
	return nil
}

// Execute prepares and runs the campaign, and puts everything back.
func (r *Rig) Execute(ctx context.Context) error {
	c := &trial.Campaign{Run: record.Run{ID: "run-1", Started: time.Now().UTC(), Status: record.RunRunning,
		Lab: "fake", Design: r.Plan.Design, Meter: r.Meter}, Plan: r.Plan, Labs: r.Labs, Knobs: knob.All(),
		Engines: []traffic.Engine{r.Labs.Engine}, Prober: cmp.Or[traffic.Prober](r.Prober, Prober{}),
		Probes: Probes(), Store: &r.Trials, Sink: r.sink, Ask: r.Ask, Done: r.Done, Marks: r.Marks,
		Slack: cmp.Or(r.Slack, 2*time.Second)}
	r.Campaign = c
	err := c.Prepare(ctx)
	if err == nil && r.Begin != nil {
		c.Store, err = r.Begin(ctx, c.Run)
	}
	if err == nil {
		r.Outcome, err = c.Execute(ctx)
	}
	return errors.Join(err, c.Close(context.WithoutCancel(ctx)))
}

func (r *Rig) sink(e record.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// Note adds a line of the test's own to the events, as one of kind "note".
func (r *Rig) Note(text string) { r.sink(record.Event{Event: "note", Text: text}) }

// Events are the events of the kinds given, or all of them.
func (r *Rig) Events(kinds ...string) []record.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []record.Event
	for _, e := range r.events {
		if len(kinds) == 0 || slices.Contains(kinds, e.Event) {
			out = append(out, e)
		}
	}
	return out
}
