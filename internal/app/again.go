package app

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// again runs plans under the conditions of an earlier run: in the same kind of lab with guests of the same
// size, in the same lab made by "lab up", or with the same peer.
type again struct {
	*App
	on    record.Run // earlier run
	other Peer
	guard *guard    // stops changes that do harm; nil means that no changes are tried
	until time.Time // runs that would end later are not started; zero means no limit
}

// labTime is the estimated time to bring a lab up and down.
const labTime = 3 * time.Second

// takes estimates the duration of a run of a plan. It derives the overhead per trial from the document of an
// earlier run.
func (a again) takes(pl *plan.Plan, before *analysis.Document) time.Duration {
	method := before.Run.Method
	planned := method.Warmup + method.Duration + method.Cooldown
	overheads := []time.Duration{RowOverhead}
	for _, t := range before.Trials {
		if t.Kind == record.RowLoad && t.Failure == nil {
			overheads = append(overheads, time.Duration(t.Seconds*float64(time.Second))-planned)
		}
	}

	slices.Sort(overheads)
	return labTime + pl.Estimate(max(RowOverhead, overheads[len(overheads)/2]))
}

// about formats an estimated duration.
func about(d time.Duration) string { return unit.Seconds(d.Round(time.Second)) }

// onceMore prepares runs under the conditions of a stored run.
func (a *App) onceMore(ctx context.Context, run, codeFile string) (again, error) {
	on, err := a.Dirs.head(ctx, run)
	if err != nil {
		return again{}, err
	}

	other, err := Peer{CodeFile: codeFile}.of(on)
	return again{App: a, on: on, other: other}, err
}

// readPatched returns the plan that x describes. It does not add address translation to cells in which x does
// not set it.
func (a again) readPatched(x plan.Patched) (*plan.Plan, error) {
	pl, err := ReadPlan(x.Name, x.Text(a.other.Vocabulary()), a.other)
	if err == nil {
		pl.Design.DropDefaultNAT(func(cell record.Factors) bool {
			return !slices.ContainsFunc(x.Cells, func(of factor.Cell) bool {
				return factor.NAT.In(of) && factor.IP.Is(of, factor.IP.Of(cell))
			})
		})
	}
	return pl, err
}

// NewRunOn returns the head of a run of a plan in the lab of another run.
func (a *App) NewRunOn(pl *plan.Plan, on record.Run) record.Run {
	run := a.NewRun(pl)
	run.Device = on.Device
	run.Lab = on.Lab
	run.Driver = on.Driver
	run.Meter = on.Meter
	run.Machines = on.Machines // shared, so that all runs of a command use the place that the first one takes
	run.GuestSize = on.GuestSize
	run.Image = on.Image
	run.OwnKernel = on.OwnKernel
	run.Queues = on.Queues
	return run
}

// run executes a plan as a separate run, with its own journal, report and entry in the store. Even if the run
// was cut short, run returns its document.
func (a again) run(ctx context.Context, pl *plan.Plan) (*analysis.Document, error) {
	x, err := a.execution(ctx, pl, a.NewRunOn(pl, a.on),
		RunOptions{Attach: a.on.Attached, Peer: a.other, Until: a.until})
	if err != nil {
		return nil, err
	}

	x.guard = a.guard
	result, err := x.whole(ctx)
	if result == nil {
		return nil, err
	}

	return result.Document, err
}

// execution returns an execution of a plan. head is the head of the run.
func (a *App) execution(ctx context.Context, pl *plan.Plan, head record.Run, o RunOptions) (x *execution,
	err error) {
	x = &execution{App: a, plan: pl, run: head, attach: o.Attach, reportPath: o.Report, until: o.Until}
	m := x.run.Machines
	remote := m != nil && m.Router.At == "" && m.Place == nil // with a place, its tags may name the router
	if o.Peer.At == "" && !remote {
		return x, nil
	}

	note := o.Peer.limit(&x.run.Design)
	if note != "" {
		x.run.Caveats = append(x.run.Caveats, record.Caveat{Kind: "third-party", Text: note})
	}

	x.plan = plan.New(x.run.Design)
	if o.Peer.At != "" {
		x.run.Lab = record.LabPair
		x.run.Peer = o.Peer.At
		x.peer, err = x.pair(ctx, o.Peer, x.run.ID)
	}

	return x, err
}

// link adds the id of this experiment to the run that named the tested cause. That run may have been deleted.
func (x *execution) link(ctx context.Context) error {
	e := x.run.Design.Experiment
	if e == nil || e.Run == "" {
		return nil
	}

	of, err := x.store.Find(ctx, e.Run)
	_, gone := errors.AsType[*store.NotFoundError](err)
	if gone {
		x.note("run %s, whose finding this tests, is not stored here", e.Run)
		return nil
	}

	if err != nil {
		return err
	}

	return x.addNote(ctx, of.ID, store.Note{Experiments: []string{x.run.ID}})
}

// addNote stores a note about a run. If the store is locked, addNote waits.
func (x *execution) addNote(ctx context.Context, run string, n store.Note) error {
	return store.Patiently(ctx, settleTime, func() error { return x.store.AddNote(ctx, run, n) })
}
