package trial_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/trial"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// interim analyses a campaign's trials as the program does.
func interim(run *record.Run) trial.Interim { return analysis.NewInterim(run) }

// fakeCampaign is a campaign over fakes. Its fields are set before Execute.
type fakeCampaign struct {
	*trial.Campaign
	Labs    *fakeLabs
	Begin   func(ctx context.Context, run record.Run) (trial.Store, error) // nil: Trials is the store
	Trials  labtest.Trials
	Outcome trial.Outcome
	Caveats []record.Caveat // that were learnt
	After   map[string]*record.Inventory

	mu     sync.Mutex
	events []record.Event
}

// rig makes a campaign of a plan; its trials have 2 s beyond their own times, since fakes are quick.
func rig(t testing.TB, text string) *fakeCampaign {
	t.Helper()
	p := labtest.ReadPlan(t, text, registry.Vocabulary())
	r := &fakeCampaign{
		Labs: &fakeLabs{},
		Campaign: &trial.Campaign{
			Plan:   p,
			Prober: labtest.Prober{},
			Run: record.Run{RunHead: record.RunHead{
				ID:      "run-1",
				Started: time.Now().UTC(),
				Status:  record.RunRunning,
				Lab:     "fake",
			}},
			Probes:     labtest.Probes(),
			NewInterim: interim,
			Brief:      analysis.Brief,
			Slack:      2 * time.Second,
		},
	}
	r.Store, r.Sink = &r.Trials, r.sink
	r.Learnt = func(_ context.Context, _ []record.Skipped, caveats []record.Caveat) error {
		r.Caveats = append(r.Caveats, caveats...)
		return nil
	}
	r.LearntAfter = func(_ context.Context, after map[string]*record.Inventory) error {
		r.After = after
		return nil
	}
	return r
}

// Prepare takes over what a test has changed of the plan and the labs.
func (r *fakeCampaign) Prepare(ctx context.Context) error {
	r.Run.Design, r.Engines = r.Plan.Design, []traffic.Engine{r.Labs.Engine}
	if r.Campaign.Labs == nil {
		r.Campaign.Labs = r.Labs
	}
	return r.Campaign.Prepare(ctx)
}

// Execute prepares and runs the campaign, and puts everything back.
func (r *fakeCampaign) Execute(ctx context.Context) error {
	err := r.Prepare(ctx)
	if err == nil && r.Begin != nil {
		r.Store, err = r.Begin(ctx, r.Run)
	}

	if err == nil {
		r.Outcome, err = r.Campaign.Execute(ctx)
	}

	return errors.Join(err, r.Close(context.WithoutCancel(ctx)))
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

// Told are the texts of the events of a kind.
func (r *fakeCampaign) Told(kind string) (texts []string) {
	for _, e := range r.Events(kind) {
		texts = append(texts, e.Text)
	}
	return texts
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

// refuseSeven has the engine refuse loads of seven streams.
func (o *fakeLabs) refuseSeven() {
	o.Engine.Refuse = func(load record.Load) string {
		if load.Streams == 7 {
			return "seven is too many"
		}
		return ""
	}
}

// For implements trial.Labs.
func (o *fakeLabs) For(_ context.Context, topology string, size record.GuestSize) (*lab.Lab, error) {
	o.Sizes = append(o.Sizes, size)
	why := o.Missing[topology]
	if why != "" {
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
		o.up = map[string]*lab.Lab{}
		o.Fakes = map[string]*labtest.Lab{}
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
