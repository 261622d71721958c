package app

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/trial"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/ceiling"
)

// peerVersion is the kind of the caveat about the peer's version. versionText is the beginning of its text.
const (
	peerVersion = "peer-version"
	versionText = "the peer is another version of chokepoint: "
)

// otherVersion returns the peer's version of chokepoint, or "" if it equals this one.
func otherVersion(ctx context.Context, l *lab.Lab) (string, error) {
	far, err := l.Node(ctx, l.Topology.Far)
	if err != nil || far.Version == "" || source(far.Version) == source(RunVersion()) {
		return "", err
	}
	return far.Version, nil
}

// begin measures the tester's ceilings and stores the head of the run.
func (x *execution) begin(ctx context.Context) error {
	c := x.campaign
	l := c.Lab()
	if l != nil {
		theirs, err := otherVersion(ctx, l)
		if err != nil {
			return err
		}

		if theirs != "" {
			c.Run.Caveats = append(c.Run.Caveats, record.Caveat{
				Kind: peerVersion,
				Text: versionText + theirs + ", this is " + RunVersion(),
			})
		}

		if x.guard == nil {
			err = x.ceilings(ctx, l)
		} else {
			c.Run.Ceilings = x.guard.tester
		}

		if err != nil {
			return err
		}
	}

	c.Run.Device = cmp.Or(c.Run.Device, c.Run.FoundDevice())
	err := store.Patiently(ctx, settleTime, func() error { return x.store.CreateRun(ctx, c.Run) })
	if err != nil {
		return err
	}

	return x.link(ctx)
}

// ceilings measures the highest rates of the tester without a router, or notes why they are missing.
func (x *execution) ceilings(ctx context.Context, l *lab.Lab) error {
	c := x.campaign
	kinds := c.Kinds()
	if len(kinds) == 0 { // the plan sends nothing
		return nil
	}

	missing := errors.New("the plan does not measure the tester's ceiling")
	if !c.Run.Design.Measure.NoCeiling {
		_, _, rows := c.Ahead()
		takes := time.Duration(len(kinds)) * ceiling.Each
		x.emit(record.Event{
			Event: "phase",
			Phase: "tester ceiling",
			Text:  "measuring what this machine can send, " + about(takes),
			Left:  takes + rows,
		})
		own := x.Local(x.run.ID, x.journal)
		own.Queues = x.run.Queues
		c.Run.Ceilings, missing = trial.Ceilings(ctx, l, own, kinds)
	}

	switch {
	case missing == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}

	caveat := record.Caveat{Kind: "no-tester-ceiling", Text: missing.Error()}
	c.Run.Caveats = append(c.Run.Caveats, caveat)
	return nil
}
