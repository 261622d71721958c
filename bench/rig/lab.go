package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
	"github.com/chokepoint-lab/chokepoint/internal/trial"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// OnLab runs do on a new local lab on which real packets cross all links. Options already set in l, such as a
// guest or queues, stay.
func OnLab(ctx context.Context, topology string, l lab.Local, do func(l *lab.Lab) error) (err error) {
	dir, err := os.MkdirTemp("", "chokepoint-bench-")
	if err != nil {
		return fmt.Errorf("create a folder for the lab: %w", err)
	}
	defer os.RemoveAll(dir)
	if l.Topology, err = lab.TopologyNamed(topology); err != nil {
		return err
	}

	l.ID, l.Dir, l.Parts = "bench", filepath.Join(dir, "labs"), registry.LabParts()
	up, err := l.Up(ctx)
	if err != nil {
		return err
	}
	defer func() {
		down, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		err = errors.Join(err, up.Close(down))
	}()
	if err := Settle(ctx, up, "wire"); err != nil {
		return err
	}

	return do(up)
}

// Settle sets the offload level of all links, and the other settings of the lab.
func Settle(ctx context.Context, l *lab.Lab, offload string, others ...record.Setting) error {
	for _, link := range l.Topology.Links {
		for _, end := range link.Ends {
			others = append(others, record.Setting{
				Knob:  "offload",
				Node:  end.Node,
				Port:  end.Port,
				Value: offload,
			})
		}
	}
	return l.Reconcile(ctx, others)
}

// Ends returns the near and the far end of the plain path.
func Ends(ctx context.Context, l *lab.Lab, ip int) (e [2]traffic.End, err error) {
	for i, name := range []string{l.Topology.Near, l.Topology.Far} {
		n, err := l.Node(ctx, name)
		if err != nil {
			return e, err
		}

		a := l.Address(0, i, ip)
		e[i] = traffic.End{Node: name, Agent: n.Agent, Addr: a, Target: a}
		if e[i].Offset, _, err = n.Agent.Clock(ctx); err != nil {
			return e, err
		}

		if e[i].Next, err = trial.Neighbor(ctx, l, name); err != nil {
			return e, err
		}
	}
	return e, nil
}

// Engine and Prober return those of that name from the registry.
func Engine(name string) traffic.Engine { return named(node.Engines(), name) }

func Prober(name string) traffic.Prober { return named(node.Probers(), name) }

func named[T interface{ Name() string }](all []T, name string) T {
	return all[slices.IndexFunc(all, func(x T) bool { return x.Name() == name })]
}

// Clock conducts one engine or probe that runs alone.
type Clock struct{ Load record.Load }

// Ready implements traffic.Conductor.
func (c Clock) Ready(context.Context) (record.Window, error) {
	w := record.Window{Begin: host.Monotonic() + int64(50*time.Millisecond)}
	w.Start = w.Begin + int64(c.Load.Warmup)
	w.End = w.Start + int64(c.Load.Duration)
	w.Stop = w.End + int64(500*time.Millisecond)
	return w, nil
}

// Progress implements traffic.Conductor.
func (Clock) Progress(traffic.Progress) {}

// Start runs a command on a node; it ends with the session.
func Start(ctx context.Context, l *lab.Lab, node string, args ...string) (host.Session, error) {
	n, err := l.Node(ctx, node)
	if err != nil {
		return nil, err
	}

	s, err := n.Command(ctx, args...)
	if err != nil {
		return nil, fmt.Errorf("start %s on %s: %w", args[0], node, err)
	}

	return s, nil
}

// Exec runs a command on a node to its end and returns its output.
func Exec(ctx context.Context, l *lab.Lab, node, input string, args ...string) (string, error) {
	n, err := l.Node(ctx, node)
	if err != nil {
		return "", err
	}

	out, err := host.Run(ctx, agent.NewHost(node, n.Agent), host.Command{
		Path:  args[0],
		Args:  args[1:],
		Stdin: strings.NewReader(input),
	})
	if err != nil {
		err = fmt.Errorf("execute %s on %s: %w", strings.Join(args, " "), node, err)
	}

	return string(out), err
}
