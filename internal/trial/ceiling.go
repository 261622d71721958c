package trial

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Ceilings measures what the tester of a lab can do alone, for kinds of
// traffic. Of two machines the slower one counts, for each kind. Frames need a
// link: for those, a lab of this machine's is made of own, with two ends and
// nothing between, and taken down again. What was measured before an error is
// returned with it.
func Ceilings(ctx context.Context, l *lab.Lab, own lab.Local, kinds []traffic.Kind) ([]record.Ceiling, error) {
	near, err := l.Node(ctx, l.Topology.Near)
	if err != nil {
		return nil, err
	}
	var frames, others []traffic.Kind
	for _, k := range kinds {
		if k.Frames() {
			frames = append(frames, k)
		} else {
			others = append(others, k)
		}
	}
	found, err := traffic.Loopback(ctx, near.Agent, others)
	if err == nil && l.TwoMachines() && !l.Stranger() {
		found, err = slowerOfTwo(ctx, l, others, found)
	}
	if err != nil || len(frames) == 0 || l.TwoMachines() { // a peer takes no frames
		return found, err
	}
	ofFrames, err := direct(ctx, own, frames)
	return append(found, ofFrames...), err
}

// slowerOfTwo asks the far machine too.
func slowerOfTwo(ctx context.Context, l *lab.Lab, kinds []traffic.Kind, ours []record.Ceiling) ([]record.Ceiling, error) {
	far, err := l.Node(ctx, l.Topology.Far)
	if err != nil {
		return nil, err
	}
	var theirs []record.Ceiling
	if err := far.Agent.Invoke(ctx, lab.VerbCeilings, kinds, &theirs); err != nil {
		return nil, fmt.Errorf("measure the ceiling of the peer: %w", err)
	}
	return slower(ours, theirs), nil
}

// direct measures in a lab of two ends, which lives only for that.
func direct(ctx context.Context, own lab.Local, kinds []traffic.Kind) (found []record.Ceiling, err error) {
	if own.Topology, err = lab.TopologyNamed("direct"); err != nil {
		return nil, err
	}
	own.ID += "-ceiling"
	l, err := own.Up(ctx)
	if err != nil {
		return nil, fmt.Errorf("measure the tester's ceiling of frames: %w", err)
	}
	defer func() { err = errors.Join(err, l.Close(context.WithoutCancel(ctx))) }()
	w, err := gather(ctx, l, lab.Path{Resolved: "none"}, demand{ip: 4})
	if err != nil {
		return nil, err
	}
	return traffic.Direct(ctx, w.near, w.far, kinds)
}

// slower keeps the lower ceiling of each kind, and says whose it is.
func slower(ours, theirs []record.Ceiling) []record.Ceiling {
	out := slices.Clone(ours)
	for i := range out {
		j := slices.IndexFunc(theirs, func(c record.Ceiling) bool { return c.Kind == out[i].Kind && c.Unit == out[i].Unit })
		whose := "this machine, the slower of the two; "
		if j >= 0 && theirs[j].Value < out[i].Value {
			out[i], whose = theirs[j], "the peer, the slower of the two; "
		}
		out[i].Note = whose + out[i].Note
	}
	return out
}
