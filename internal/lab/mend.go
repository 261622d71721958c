package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// lookTime is how long a node or a tunnel may take to say that it is there.
const lookTime = 5 * time.Second

// MendTime bounds the mending of the lab. That of a guest may take longer than that of a namespace: to see
// that it hangs, and to boot another.
func (l *Lab) MendTime() time.Duration {
	if l.Guest == nil {
		return mendTime
	}
	kvm, emulated := bootTimes(l.Guest)
	return mendTime + wakeTries*wakeTime + kvm + emulated
}

const mendTime = 20 * time.Second

// Mend makes the lab usable again after something in it has failed. Nodes whose agents are gone get new
// ones, guests that have ended or hang are booted anew, and what was set there is taken as unknown: the
// next Settle puts it back. The tunnel that was wanted last, tunnels that ended on such nodes and those
// whose counters cannot be read are taken down; the next Path lays them again. Mend reports whether a node
// has a new agent, and in which state it has found those that did not answer.
func (l *Lab) Mend(ctx context.Context) (fresh bool, found error) {
	renewed, found := l.renew(ctx)
	for _, t := range l.settings {
		if slices.Contains(renewed, t.setting.Node) {
			t.stuck, t.undo = true, t.again
		}
		// What the machine does to a guest it did to the one that is gone. Its own agent lives, and with it
		// the way back.
		if t.setting.Node == HostNode && slices.ContainsFunc(renewed, l.OwnKernel) {
			t.stuck = true
		}
	}
	ended := slices.ContainsFunc(renewed,
		func(node string) bool { return slices.Contains(l.Topology.Tunnel[:], node) })
	for key, t := range l.tunnels {
		if ended || slices.Contains(l.wanted, key) || !tells(ctx, t) {
			l.left = errors.Join(l.left, l.lower(ctx, key))
		}
	}
	return len(renewed) > 0, found
}

// renew dials the nodes whose agents are gone.
func (l *Lab) renew(ctx context.Context) (names []string, found error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, n := range l.nodes {
		if n.Agent == nil {
			continue
		}
		gone := l.gone(ctx, n)
		if gone == nil {
			continue
		}
		found = errors.Join(found, fmt.Errorf("node %s: %w", name, gone))
		fresh, err := l.dial(ctx, name)
		if err == nil && l.OwnKernel(name) {
			if _, _, err = fresh.Agent.Clock(ctx); err != nil { // once it has booted
				fresh.Agent.Close()
			}
		}
		if err != nil {
			continue // it stays as it is: every use of it says that it is gone
		}
		n.Agent.Close()
		l.nodes[name] = fresh
		names = append(names, name)
	}
	return names, found
}

// gone says why a node's agent is of no use any more. A process that is only slow still holds what was set
// through it; a guest that does not answer, now that nothing loads it, hangs.
func (l *Lab) gone(ctx context.Context, n *Node) error {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	_, _, err := n.Agent.Clock(ctx)
	switch {
	case err == nil || errors.Is(err, host.ErrUnreachable):
		return err
	case l.OwnKernel(n.Name):
		return fmt.Errorf("guest %s hangs: no answer within %s; its console%s", n.Name, lookTime,
			lastWords(consoleOf(l.dir, n.Name)))
	}
	return nil
}

func tells(ctx context.Context, t *laid) bool {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	_, err := t.Counters(ctx)
	return err == nil
}

// goneWithIt reports whether everything that is still set was set in the lab itself, not on the machine
// that carried it.
func (l *Lab) goneWithIt() bool {
	return !slices.ContainsFunc(l.settings, func(t *turned) bool { return t.setting.Node == HostNode })
}

// forget says of what was set in a lab that is gone that it is undone.
func (l *Lab) forget() error {
	var err error
	for _, t := range l.settings {
		if l.journal != nil && t.seq > 0 {
			err = errors.Join(err, l.journal.Done(t.seq))
		}
	}
	l.settings = nil
	return err
}
