package trial_test

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// interim analyses a campaign's trials as the program does.
func interim(run *record.Run) trial.Interim { return analysis.NewInterim(run) }

// fakeCampaign is a campaign over fakes. Its fields are set before Execute.
type fakeCampaign struct {
	Plan   *plan.Plan
	Labs   *fakeLabs
	Prober traffic.Prober // nil: labtest.Prober{}
	Done   []record.Trial
	Marks  []record.Caveat
	Meter  *record.Meter
	Slack  time.Duration   // 0: 2 s, fakes are quick
	Until  time.Time       // see trial.Campaign
	Learnt []record.Caveat // set by Execute
	After  map[string]*record.Inventory
	Ask    func(ctx context.Context, s record.Step) error
	Begin  func(ctx context.Context, run record.Run) (trial.Store, error) // nil: Trials is the store

	Campaign *trial.Campaign // set by Execute
	Trials   labtest.Trials  // set by Execute, unless Begin is
	Outcome  trial.Outcome

	mu     sync.Mutex
	events []record.Event
}

// Execute prepares and runs the campaign, and puts everything back.
func (r *fakeCampaign) Execute(ctx context.Context) error {
	c := &trial.Campaign{Run: record.Run{ID: "run-1", Started: time.Now().UTC(), Status: record.RunRunning,
		Lab: "fake", Design: r.Plan.Design, Meter: r.Meter}, Plan: r.Plan, Labs: r.Labs,
		Engines: []traffic.Engine{r.Labs.Engine}, Prober: cmp.Or[traffic.Prober](r.Prober, labtest.Prober{}),
		Probes: labtest.Probes(), Store: &r.Trials, Sink: r.sink, Ask: r.Ask, Done: r.Done, Marks: r.Marks,
		NewInterim: interim, Brief: analysis.Brief,
		Slack: cmp.Or(r.Slack, 2*time.Second), Until: r.Until,
		Learnt: func(_ context.Context, _ []record.Skipped, caveats []record.Caveat) error {
			r.Learnt = append(r.Learnt, caveats...)
			return nil
		},
		LearntAfter: func(_ context.Context, after map[string]*record.Inventory) error {
			r.After = after
			return nil
		}}
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

func (r *fakeCampaign) sink(e record.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// Note adds a line of the test's own to the events, as one of kind "note".
func (r *fakeCampaign) Note(text string) { r.sink(record.Event{Event: "note", Text: text}) }

// Events are the events of the kinds given, or all of them.
func (r *fakeCampaign) Events(kinds ...string) []record.Event {
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

// fakeLabs lends fake labs, as lab.Locals lends real ones.
type fakeLabs struct {
	Agentless []string
	Engine    labtest.Engine
	Changed   func(router, setting, value string)
	Missing   map[string]string       // topology → why there is no lab of it
	Fakes     map[string]*labtest.Lab // those that were lent
	Sizes     []record.GuestSize      // that were asked for

	up map[string]*lab.Lab
}

// For implements trial.Labs.
func (o *fakeLabs) For(_ context.Context, topology string, size record.GuestSize) (*lab.Lab, error) {
	o.Sizes = append(o.Sizes, size)
	if why := o.Missing[topology]; why != "" {
		return nil, &lab.NoTopology{Topology: topology, Reason: why}
	}
	if l := o.up[topology]; l != nil {
		return l, nil
	}
	t, err := lab.TopologyNamed(topology)
	if err != nil {
		return nil, err
	}
	f := &labtest.Lab{Topology: t, Agentless: o.Agentless, Engine: o.Engine, Changed: o.Changed}
	l, err := f.Up()
	if err != nil {
		return nil, err
	}
	if o.up == nil {
		o.up, o.Fakes = map[string]*lab.Lab{}, map[string]*labtest.Lab{}
	}
	o.up[topology], o.Fakes[topology] = l, f
	return l, nil
}

// Close implements trial.Labs.
func (o *fakeLabs) Close(ctx context.Context) error {
	var err error
	for _, topology := range slices.Sorted(maps.Keys(o.up)) {
		err = errors.Join(err, o.up[topology].Close(ctx))
	}
	return err
}
