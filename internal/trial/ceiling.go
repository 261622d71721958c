package trial

import (
	"context"
	"fmt"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Ceilings measures what the tester of a lab can do alone, for kinds of
// traffic. Of two machines the slower one counts, for each kind.
func Ceilings(ctx context.Context, l *lab.Lab, kinds []traffic.Kind) ([]record.Ceiling, error) {
	near, err := l.Node(ctx, l.Topology.Near)
	if err != nil {
		return nil, err
	}
	found, err := traffic.Loopback(ctx, near.Agent, kinds)
	if err != nil || !l.TwoMachines() || l.Stranger() {
		return found, err
	}
	far, err := l.Node(ctx, l.Topology.Far)
	if err != nil {
		return nil, err
	}
	var theirs []record.Ceiling
	if err := far.Agent.Invoke(ctx, lab.VerbCeilings, kinds, &theirs); err != nil {
		return nil, fmt.Errorf("measure the ceiling of the peer: %w", err)
	}
	return slower(found, theirs), nil
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
