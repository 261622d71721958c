package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

// again runs further plans where a run was made: on the same kind of lab, of the same size, in the same lab
// of lab up, or with the same peer.
type again struct {
	p     *program
	on    record.Run // the run
	other otherEnd
	guard *guard    // of what is tried, nil: none
	until time.Time // no run begins that would end later; zero: no bound
}

// labTime covers bringing a lab up and down.
const labTime = 3 * time.Second

// takes estimates how long a plan takes here, by what the trials of a document took beyond their own times.
func (a again) takes(pl *plan.Plan, before *analysis.Document) time.Duration {
	method := before.Run.Method
	planned := method.Warmup + method.Duration + method.Cooldown
	overheads := []time.Duration{rowOverhead}
	for _, t := range before.Trials {
		if t.Kind == record.RowLoad && t.Failure == nil {
			overheads = append(overheads, time.Duration(t.Seconds*float64(time.Second))-planned)
		}
	}
	slices.Sort(overheads)
	return labTime + pl.Estimate(max(rowOverhead, overheads[len(overheads)/2]))
}

// onceMore prepares to measure again where a stored run was made.
func (p *program) onceMore(ctx context.Context, run, codeFile string) (a again, err error) {
	a = again{p: p, other: otherEnd{codeFile: codeFile}}
	if a.on, err = loadHead(ctx, p.dirs, run); err == nil {
		a.other, err = a.other.of(a.on)
	}
	return a, err
}

// read expands a plan that was written for that place, with a seed of its own unless the text has one.
func (a again) read(name, text string) (*plan.Plan, error) {
	pl, err := plan.Read(name, []byte(text), a.other.vocabulary(), nil)
	if err == nil && !pl.SeedGiven {
		pl = pl.WithSeed(uint64(rand.Uint32()))
	}
	return pl, err
}

// readPatched expands the plan of cells and their patches. What the cells do not say of address translation,
// since it is not set there, the plan does not say either.
func (a again) readPatched(x plan.Patched) (*plan.Plan, error) {
	pl, err := a.read(x.Name, x.Text(a.other.vocabulary()))
	if err == nil {
		pl.Design.DropDefaultNAT(func(cell record.Factors) bool {
			return !slices.ContainsFunc(x.Cells, func(of factor.Cell) bool {
				return factor.NAT.In(of) && factor.IP.Is(of, factor.IP.Of(cell))
			})
		})
	}
	return pl, err
}

// run runs a plan as a run of its own, with everything that a run has: journal, undoing, store, report and
// resume. It prints progress and no result, and gives back the document, also of a run that was cut short.
func (a again) run(ctx context.Context, pl *plan.Plan) (*analysis.Document, error) {
	on := labOptionsOf(a.on)
	x := &execution{p: a.p, plan: pl, run: newRun(pl, &on), attach: a.on.Attached, kept: true,
		guard: a.guard, until: a.until}
	if err := x.with(ctx, a.other); err != nil {
		return nil, err
	}
	err := x.whole(ctx)
	if x.doc == nil && err == nil {
		err = fmt.Errorf("run %s left no document", x.run.ID)
	}
	if x.doc != nil && exitCode(err) == codeFailed { // told by the trials' grades
		err = nil
	}
	return x.doc, err
}

// with makes the lab of an execution the one with another machine, if one is named.
func (x *execution) with(ctx context.Context, other otherEnd) (err error) {
	if m := x.run.Machines; m != nil && m.Router.At == "" {
		other.limits(&x.run.Design)
		x.plan = plan.New(x.run.Design)
	}
	if other.peer == "" {
		return nil
	}
	x.run.Lab, x.run.Peer = record.LabPair, other.peer
	if x.peer, err = other.lab(ctx, x.run.ID, x.p); err != nil {
		return err
	}
	if note := other.limits(&x.run.Design); note != "" {
		x.run.Caveats = append(x.run.Caveats, record.Caveat{Kind: "third-party", Text: note})
	}
	x.plan = plan.New(x.run.Design)
	return nil
}

// link says of the run whose finding is put to the test that this one does it. That run may be gone.
func (x *execution) link(ctx context.Context) error {
	e := x.run.Design.Experiment
	if e == nil || e.Run == "" {
		return nil
	}
	of, err := x.store.Find(ctx, e.Run)
	if _, gone := errors.AsType[*store.NotFoundError](err); gone {
		x.p.note("run %s, whose finding this is to prove, is not stored here", e.Run)
		return nil
	}
	if err != nil {
		return err
	}
	return x.addNote(ctx, of.ID, store.Note{Experiments: []string{x.run.ID}})
}

// addNote stores what was learnt of a run, also if the store is locked meanwhile.
func (x *execution) addNote(ctx context.Context, run string, n store.Note) error {
	return store.Patiently(ctx, settleTime, func() error { return x.store.AddNote(ctx, run, n) })
}
