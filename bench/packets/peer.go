package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// clock conducts one engine that runs alone.
type clock struct{ load record.Load }

func (c clock) Ready(context.Context) (record.Window, error) {
	w := record.Window{Begin: host.Monotonic() + int64(50*time.Millisecond)}
	w.Start = w.Begin + int64(c.load.Warmup)
	w.End = w.Start + int64(c.load.Duration)
	w.Stop = w.End + int64(200*time.Millisecond)
	return w, nil
}

func (clock) Progress(traffic.Progress) {}

// ends are those of the lab's plain path.
func ends(ctx context.Context, l *lab.Lab, ip int) (near, far traffic.End, err error) {
	var e [2]traffic.End
	for i, name := range []string{l.Topology.Near, l.Topology.Far} {
		n, err := l.Node(ctx, name)
		if err != nil {
			return near, far, err
		}
		a := l.Address(0, i, ip)
		e[i] = traffic.End{Node: name, Agent: n.Agent, Addr: a, Target: a}
		if e[i].Offset, _, err = n.Agent.Clock(ctx); err != nil {
			return near, far, err
		}
		if port, ok := l.Neighbor(name); ok {
			next, err := l.Node(ctx, port.Node)
			if err != nil {
				return near, far, err
			}
			e[i].Next = &traffic.Neighbor{Node: port.Node, Agent: next.Agent, Device: port.Port}
		}
	}
	return e[0], e[1], nil
}

// peer runs xdp-trafficgen from client to server, where xdp-bench drops what arrives, and returns frames
// per second by the server's device.
func (b *bench) peer(ctx context.Context, l *lab.Lab) (pps float64, err error) {
	// Both undo what they did only if they are asked to end.
	limit := func(spare time.Duration) []string {
		return []string{"timeout", "-s", "INT", fmt.Sprintf("%.1f", (b.length + spare).Seconds())}
	}
	sink, err := start(ctx, l, "server", append(limit(6*time.Second), b.sink, "drop", "lan", "-p", "no-touch",
		"-m", "native", "-i", "60")...)
	if err != nil {
		return 0, err
	}
	defer end(sink)
	time.Sleep(500 * time.Millisecond)
	generator, err := start(ctx, l, "client", append(limit(4*time.Second), b.generator, "udp", "lan", "-t",
		"1", "-I", "60")...)
	if err != nil {
		return 0, err
	}
	defer end(generator)
	if err := b.flowing(ctx, l); err != nil {
		return 0, err
	}
	before, from, err := received(ctx, l)
	if err != nil {
		return 0, err
	}
	time.Sleep(b.length)
	after, to, err := received(ctx, l)
	if err != nil {
		return 0, err
	}
	pps = float64(after-before) / float64(to-from) * 1e9
	if b.verbose {
		fmt.Fprintf(b.talk, "xdp-trafficgen: %.0f pps\n", pps)
	}
	return pps, nil
}

// flowing waits until frames have arrived for a warm-up's time.
func (b *bench) flowing(ctx context.Context, l *lab.Lab) error {
	first, _, err := received(ctx, l)
	if err != nil {
		return err
	}
	for range 100 {
		time.Sleep(100 * time.Millisecond)
		now, _, err := received(ctx, l)
		if err != nil {
			return err
		}
		if now > first+1000 {
			time.Sleep(300 * time.Millisecond)
			return nil
		}
	}
	return errors.New("xdp-trafficgen sent nothing within 10 s")
}

func received(ctx context.Context, l *lab.Lab) (packets uint64, at int64, err error) {
	at = host.Monotonic()
	c, err := l.Counters(ctx, "server", "lan")
	if err != nil {
		return 0, 0, err
	}
	return c["lan"].RxPackets, (at + host.Monotonic()) / 2, nil
}

// start runs a command on a node.
func start(ctx context.Context, l *lab.Lab, node string, args ...string) (host.Session, error) {
	n, err := l.Node(ctx, node)
	if err != nil {
		return nil, err
	}
	s, err := n.Agent.Open(ctx, agent.VerbExec, agent.Exec{Args: args})
	if err != nil {
		return nil, fmt.Errorf("start %v on %s: %w", args, node, err)
	}
	return s, nil
}

// end waits until a command has ended.
func end(s host.Session) {
	s.Finish()
	for s.Recv(nil) == nil {
	}
	s.Close()
}
