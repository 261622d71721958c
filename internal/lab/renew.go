package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/pair"
)

// answerTime bounds how long a node or a tunnel takes to answer a check.
const answerTime = 5 * time.Second

// ReconnectTime bounds Reconnect. A guest may take longer than a namespace: its hanging must be detected, and
// it must boot again. A peer serves our broken connection until it notices the break.
func (l *Lab) ReconnectTime() time.Duration {
	if l.network != nil {
		return renewTime + pair.Silence
	}
	return renewTime + l.patience
}

const renewTime = 20 * time.Second

// Reconnect makes the lab usable again after a failure. Nodes whose agents are gone get new ones, guests that
// have ended or hang are booted anew, and their settings count as unknown: the next Reconcile restores them.
// The last wanted tunnel, tunnels that ended on such nodes and those whose counters cannot be read are taken
// down; the next Path lays them again. Reconnect reports whether a node has a new agent, and the state of
// those that did not answer.
func (l *Lab) Reconnect(ctx context.Context) (fresh bool, found error) {
	renewed, found := l.reconnect(ctx)
	l.dead = false
	for _, t := range l.settings {
		if slices.Contains(renewed, t.setting.Node) {
			t.stuck, t.undo = true, t.again
		}

		// What the machine did to a guest applied to the previous one. The machine's own agent still runs,
		// and can undo it.
		if t.setting.Node == HostNode && slices.ContainsFunc(renewed, func(name string) bool {
			return l.nodes[name].Facts.Guest()
		}) {
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

// Boots identifies the boot of each router that the lab has not booted itself, such as guests of a lab that
// was up before. After another boot it counts as another router, since the state of the previous one is
// unknown.
func (l *Lab) Boots(ctx context.Context) map[string]string {
	boots := map[string]string{}
	for _, name := range l.Topology.Routers {
		n, err := l.Node(ctx, name)
		if err != nil || l.owned || !n.Facts.Guest() {
			continue // its next use reports the error
		}

		boot := n.Boot(ctx)
		if boot != "" {
			boots[name] = boot
		}
	}
	return boots
}

// PathDead records that no packet came through the path. The next Reconnect reboots routers that are guests:
// an emulated network device may have stopped while the agent, whose line is another device, still answers.
func (l *Lab) PathDead() { l.dead = true }

// Clear takes down tunnels and settings as Close does, but keeps the lab: afterwards only the agents are left
// on the routers.
func (l *Lab) Clear(ctx context.Context) error {
	err := l.Reconcile(ctx, nil)
	l.wanted = nil
	for key := range l.tunnels {
		err = errors.Join(err, l.lower(ctx, key))
	}

	if err != nil {
		return fmt.Errorf("clear lab %s: %w", l.ID, err)
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.nodes {
		err = errors.Join(err, n.dismiss(ctx, l.journal))
	}

	return err
}

// Rediscover is Reconnect for a router that may have become another one: where the network is not the lab's
// own, it finds the path, and the devices that face it, anew. Call Clear first, so that nothing is set or
// laid meanwhile.
func (l *Lab) Rediscover(ctx context.Context) error {
	_, _ = l.Reconnect(ctx) // losses are to be expected
	for _, name := range l.Nodes() {
		n, err := l.Node(ctx, name)
		if err == nil && (n.HasAgent() || n.HasDriver()) {
			err = l.gone(ctx, n)
		}

		if err != nil {
			return fmt.Errorf("node %s: %w", name, err)
		}
	}

	if l.again == nil {
		return nil
	}

	return l.again(ctx)
}

// reconnect dials the nodes whose agents are gone.
func (l *Lab) reconnect(ctx context.Context) (names []string, found error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.network != nil {
		l.network.lost = nil
	}

	for name, n := range l.nodes {
		if n.connection() == nil && !n.HasDriver() {
			if n.Serves != "" && l.network != nil && l.network.reachable != nil {
				if l.network.lost = l.network.reachable(ctx); l.network.lost != nil {
					found = errors.Join(found, fmt.Errorf("node %s: %w", name, l.network.lost))
				}
			}
			continue
		}

		gone := l.gone(ctx, n)
		if gone == nil {
			continue
		}

		found = errors.Join(found, fmt.Errorf("node %s: %w", name, gone))
		fresh, err := l.dial(ctx, name)
		if err == nil && fresh.Facts.Guest() {
			if err = host.Answers(ctx, fresh.connection()); err != nil { // once it has booted
				fresh.close()
			}
		}

		// What was set through an agent cannot be undone through a driver, or vice versa.
		if err == nil && fresh.HasAgent() != n.HasAgent() {
			fresh.close()
			err = fmt.Errorf("%w: it would be driven otherwise than before", host.ErrUnreachable)
		}

		if err != nil && l.network != nil && (l.network.mutual || name == l.Topology.Far) {
			l.network.lost = err
		}

		if err != nil {
			continue // the node stays as it is: every use reports that its agent is gone
		}

		l.inherit(ctx, fresh, n)
		n.close()
		l.nodes[name] = fresh
		names = append(names, name)
	}

	return names, found
}

// inherit keeps in touch, through a node's new connection, with the guard left there through the old one: it
// is ours, and excludes others. Whatever remains of a guard that is gone is removed at the end.
func (l *Lab) inherit(ctx context.Context, fresh, old *Node) {
	by, ok := fresh.Driver.(driver.Guarded)
	if !ok {
		return
	}

	fresh.past = old.past
	if old.guard.name == "" {
		return
	}

	if by.Touch(ctx, fresh.Host, old.guard.name) != nil {
		fresh.past = append(fresh.past, old.guard)
		return
	}

	fresh.guard = old.guard
	l.regularly(func(ctx context.Context) error { return by.Touch(ctx, fresh.Host, old.guard.name) })
}

// gone returns why a node's agent is no longer usable. A process that is merely slow still holds its
// settings. A guest that does not answer although it is not under load counts as hung.
func (l *Lab) gone(ctx context.Context, n *Node) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if n.connection() == nil {
		if err := n.guardGone(ctx); err != nil {
			return err
		}

		a := n.Driver.Check(ctx, n.Host)
		if a.State != check.Yes {
			return fmt.Errorf("%w: %s", host.ErrUnreachable, a.Reason)
		}

		return nil
	}

	err := host.Answers(ctx, n.connection())
	switch {
	case err == nil && l.dead && n.Facts.Guest() && slices.Contains(l.Topology.Routers, n.Name):
		said := l.words(n.Name)
		_ = n.connection().Invoke(ctx, verbKill, nil, nil) // the next trial shows whether it helped
		return fmt.Errorf("guest %s passes no packet, though its agent answers; its console%s", n.Name, said)
	case err == nil || errors.Is(err, host.ErrUnreachable):
		return err
	case n.Facts.Guest():
		return fmt.Errorf("guest %s hangs: no answer within %s; its console%s", n.Name, answerTime,
			l.words(n.Name))
	}

	return nil
}

func tells(ctx context.Context, t *laid) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	_, err := t.Counters(ctx, false)
	return err == nil
}

// goneWithIt reports whether all remaining settings were inside the lab, not on the machine that carried it.
func (l *Lab) goneWithIt() bool {
	return !slices.ContainsFunc(l.settings, func(t *applied) bool { return t.setting.Node == HostNode })
}

// forget marks the settings of a lab that is gone as undone.
func (l *Lab) forget() error {
	var err error
	for _, t := range l.settings {
		err = errors.Join(err, l.journal.Done(t.seq))
	}

	l.settings = nil
	return err
}

// verbEnds is served by the process that runs a guest, not by the guest: it answers, with an error that
// describes how, once the guest has ended.
var verbEnds = host.Verb("guest", "ends")

// verbKill is served by that process, too: it ends the guest, and the next connection finds a fresh one.
var verbKill = host.Verb("guest", "kill")

// Guard returns an error with the last output of the console if a router that is a guest has ended, or was
// ended because it hung. It returns nil when ctx ends first, or when there is nothing to guard.
func (l *Lab) Guard(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	var first sync.Once
	var found error
	for _, name := range l.Topology.Routers {
		n, err := l.Node(ctx, name)
		if err != nil || !n.Facts.Guest() || n.connection() == nil {
			continue // its next use reports the error
		}

		all.Go(func() {
			if err := ended(ctx, n.connection()); err != nil {
				first.Do(func() { found = err; cancel() })
			}
		})
	}

	all.Wait()
	return found
}

// ended waits for the end of a guest.
func ended(ctx context.Context, a host.Agent) error {
	s, err := a.Open(ctx, verbEnds, nil)
	if err == nil {
		defer s.Close()
		err = host.Await(ctx, s, nil)
	}

	if ctx.Err() != nil || !errors.Is(err, host.ErrUnreachable) {
		return nil // nobody there can report it
	}

	return err
}
