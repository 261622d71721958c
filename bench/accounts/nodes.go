package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

type clock struct{ load record.Load }

// Ready implements traffic.Conductor: there is no warm-up, whose packets would be planted upon, too.
func (c clock) Ready(context.Context) (record.Window, error) {
	w := record.Window{Begin: host.Monotonic() + int64(50*time.Millisecond)}
	w.Start = w.Begin
	w.End = w.Start + int64(c.load.Duration)
	w.Stop = w.End + int64(500*time.Millisecond)
	return w, nil
}

func (clock) Progress(traffic.Progress) {}

func (b *stand) ends(ctx context.Context, ip int) (near, far traffic.End, err error) {
	var e [2]traffic.End
	for i, name := range []string{b.lab.Topology.Near, b.lab.Topology.Far} {
		n, err := b.lab.Node(ctx, name)
		if err != nil {
			return near, far, err
		}
		a := b.lab.Address(0, i, ip)
		e[i] = traffic.End{Node: name, Agent: n.Agent, Addr: a, Target: a}
		if e[i].Offset, _, err = n.Agent.Clock(ctx); err != nil {
			return near, far, err
		}
		if p, ok := b.lab.Neighbor(name); ok {
			next, err := b.lab.Node(ctx, p.Node)
			if err != nil {
				return near, far, err
			}
			e[i].Next = &traffic.Neighbor{Node: p.Node, Agent: next.Agent, Device: p.Port}
		}
	}
	return e[0], e[1], nil
}

// start runs a command on a node; lines gives one line of its output.
func (b *stand) start(ctx context.Context, node string, args ...string) (s host.Session,
	lines func() (string, error), err error) {
	n, err := b.lab.Node(ctx, node)
	if err != nil {
		return nil, nil, err
	}
	if s, err = n.Agent.Open(ctx, agent.VerbExec, agent.Exec{Args: args}); err != nil {
		return nil, nil, err
	}
	text := ""
	return s, func() (string, error) {
		for {
			if line, rest, ok := strings.Cut(text, "\n"); ok {
				text = rest
				return line, nil
			}
			var o agent.ExecOutput
			if err := s.Recv(&o); err != nil {
				return text, err
			}
			text += string(o.Out) + string(o.Err)
			if o.Exit != nil {
				return text, fmt.Errorf("%s ended with %d", args[0], *o.Exit)
			}
		}
	}, nil
}

// exec runs a command on the router to its end.
func (b *stand) exec(ctx context.Context, input string, args ...string) (string, error) {
	s, lines, err := b.start(ctx, "router", args...)
	if err != nil {
		return "", err
	}
	defer s.Close()
	if input != "" {
		if err := s.Send([]byte(input)); err != nil {
			return "", err
		}
	}
	if err := s.Finish(); err != nil {
		return "", err
	}
	out := ""
	for {
		line, err := lines()
		out += line + "\n"
		if err != nil && strings.HasSuffix(err.Error(), "ended with 0") {
			return out, nil
		}
		if err != nil {
			return out, fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(out))
		}
	}
}
