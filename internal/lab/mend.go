package lab

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// lookTime is how long a node or a tunnel may take to say that it is there.
const lookTime = 5 * time.Second

// Mend makes the lab usable again after something in it has failed. Nodes
// whose agents are gone get new ones, and what was set through the old ones is
// taken as unknown: the next Settle puts it back. The tunnel that was wanted
// last, tunnels that ended on such nodes and those whose counters cannot be
// read are taken down; the next Path lays them again. Mend reports whether a
// node has a new agent.
func (l *Lab) Mend(ctx context.Context) bool {
	renewed := l.renew(ctx)
	for _, t := range l.settings {
		if slices.Contains(renewed, t.setting.Node) {
			t.stuck, t.undo = true, t.again
		}
	}
	ended := slices.ContainsFunc(renewed, func(node string) bool { return slices.Contains(l.Topology.Tunnel[:], node) })
	for key, t := range l.tunnels {
		if ended || key == l.last || !tells(ctx, t) {
			l.left = errors.Join(l.left, l.lower(ctx, key))
		}
	}
	return len(renewed) > 0
}

// renew dials the nodes whose agents are gone.
func (l *Lab) renew(ctx context.Context) (names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, n := range l.nodes {
		if n.Agent == nil || answers(ctx, n.Agent) {
			continue
		}
		fresh, err := l.dial(ctx, name)
		if err != nil {
			continue // it stays as it is: every use of it says that it is gone
		}
		n.Agent.Close()
		l.nodes[name] = fresh
		names = append(names, name)
	}
	return names
}

// answers reports whether an agent is there. One that is only slow is: it
// still holds what was set through it.
func answers(ctx context.Context, a host.Agent) bool {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	_, _, err := a.Clock(ctx)
	return !errors.Is(err, host.ErrUnreachable)
}

func tells(ctx context.Context, t *laid) bool {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	_, err := t.Counters(ctx)
	return err == nil
}

// goneWithIt reports whether everything that is still set was set in the lab
// itself, not on the machine that carried it.
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
