package trial

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/ceiling"
)

// Ceilings measures the maximum rates of a lab's tester alone, for the given kinds of traffic. On a single
// machine, it uses a temporary lab of two directly connected endpoints. With two machines, it measures the
// loopback device of each machine and returns the slower result; kinds that send frames are omitted. If
// there is an error, Ceilings also returns the results obtained before.
func Ceilings(ctx context.Context, l *lab.Lab, own lab.Local, kinds []ceiling.Kind) ([]record.Ceiling,
	error) {
	near, err := l.Node(ctx, l.Topology.Near)
	if err != nil {
		return nil, err
	}

	if !near.Facts.OwnMachine() {
		return direct(ctx, own, kinds)
	}

	kinds = overLoopback(kinds)
	found, err := ceiling.Loopback(ctx, near.Agent, kinds)
	if err != nil {
		return found, err
	}

	far, err := l.Node(ctx, l.Topology.Far)
	if err != nil || !far.HasAgent() {
		return found, err
	}

	var theirs []record.Ceiling
	if far.Version == "" { // the far end is an agent of this run; otherwise, it is a peer
		theirs, err = ceiling.Loopback(ctx, far.Agent, kinds)
	} else {
		err = far.Agent.Invoke(ctx, lab.VerbCeilings, kinds, &theirs)
	}

	if err != nil {
		return nil, fmt.Errorf("measure the ceiling of the far machine: %w", err)
	}

	return slower(found, theirs), nil
}

// overLoopback returns the kinds that can be measured on a loopback device without changing it.
func overLoopback(kinds []ceiling.Kind) (out []ceiling.Kind) {
	for _, k := range kinds {
		if k.Link = (record.Link{}); !k.Frames() && !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	return out
}

// direct measures ceilings in a temporary lab of two directly connected endpoints.
func direct(ctx context.Context, own lab.Local, kinds []ceiling.Kind) (found []record.Ceiling, err error) {
	if len(kinds) == 0 {
		return nil, nil
	}

	if own.Topology, err = lab.TopologyNamed("direct"); err != nil {
		return nil, err
	}

	own.ID += "-ceiling"
	l, err := own.Up(ctx)
	if err != nil {
		return nil, fmt.Errorf("measure the tester's ceiling: %w", err)
	}
	defer func() { err = errors.Join(err, l.Close(context.WithoutCancel(ctx))) }()
	w, err := gather(ctx, l, lab.Path{Resolved: "none"}, demand{ip: 4})
	if err != nil {
		return nil, err
	}

	for _, k := range kinds {
		if err := settleLink(ctx, l, k.Link); err != nil {
			return found, fmt.Errorf("measure the tester's ceiling (%v): %w", k, err)
		}

		some, err := ceiling.Direct(ctx, w.near, w.far, []ceiling.Kind{k})
		if found = append(found, some...); err != nil {
			return found, err
		}
	}

	return found, nil
}

// settleLink configures the link of the lab.
func settleLink(ctx context.Context, l *lab.Lab, as record.Link) error {
	var want []record.Setting
	if as.MTU > 0 {
		want = everywhere(factor.LinkMTU, strconv.Itoa(as.MTU), l.Topology)
	}

	if as.Offload != "" {
		want = append(want, everywhere(factor.Offload, as.Offload, l.Topology)...)
	}

	return l.Reconcile(ctx, want)
}

func everywhere(knob factor.Name, value string, t record.Topology) []record.Setting {
	var out []record.Setting
	for _, n := range t.Nodes {
		out = append(out, record.Setting{Knob: string(knob), Node: n.Name, Value: value})
	}
	return out
}

// slower returns the lower ceiling of each kind, with a note that names the machine.
func slower(ours, theirs []record.Ceiling) []record.Ceiling {
	out := slices.Clone(ours)
	for i := range out {
		j := slices.IndexFunc(theirs, func(c record.Ceiling) bool {
			return c.Kind == out[i].Kind && c.Unit == out[i].Unit
		})
		whose := "the near machine, the slower of the two; "
		if j >= 0 && theirs[j].Value < out[i].Value {
			out[i] = theirs[j]
			whose = "the far machine, the slower of the two; "
		}

		out[i].Note = whose + out[i].Note
	}
	return out
}
