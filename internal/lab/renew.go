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

// answerTime is the time limit for the reply of a node or tunnel to a check.
const answerTime = 5 * time.Second

// ReconnectTime returns the time limit for Reconnect. In a lab with guests, it includes the time to detect
// that a guest hangs, and to boot another guest. In a lab with a peer, it includes the time until the peer
// notices that the old connection is lost.
func (l *Lab) ReconnectTime() time.Duration {
	switch {
	case l.network != nil:
		return renewTime + pair.Silence
	case l.guests != nil:
		kvm, emulated := bootTimes(l.guests.Guest)
		return renewTime + wakeTries*wakeTime + kvm + emulated
	}
	return renewTime
}

const renewTime = 20 * time.Second

// Reconnect makes the lab usable again after a failure. It reconnects to nodes whose agents are gone, and
// boots guests that have ended or hang. The settings of such nodes are then unknown, and the next Reconcile
// restores them. Reconnect also takes down tunnels that end on such nodes, are currently requested, or have
// counters that cannot be read. The next Path sets them up again. fresh reports whether a node has a new
// agent. found describes the nodes that did not respond.
func (l *Lab) Reconnect(ctx context.Context) (fresh bool, found error) {
	renewed, found := l.reconnect(ctx)
	l.dead = false
	for _, t := range l.settings {
		if slices.Contains(renewed, t.setting.Node) {
			t.stuck, t.undo = true, t.again
		}

		// Settings of the host affected the previous guest. The agent of the host is still running and can
		// undo them.
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

// Boots returns the boot ID of each router that is a guest. It returns nothing if the guests are taken down
// together with this Lab. A router whose boot ID has changed counts as another router, because its previous
// state is unknown.
func (l *Lab) Boots(ctx context.Context) map[string]string {
	boots := map[string]string{}
	for _, name := range l.Topology.Routers {
		n, err := l.Node(ctx, name)
		if err != nil || l.owned || !n.Facts.Guest() {
			continue // the next use reports an error, if there was one
		}

		boot := n.Boot(ctx)
		if boot != "" {
			boots[name] = boot
		}
	}
	return boots
}

// PathDead records that no packet passed the path. The next Reconnect then reboots routers that are guests.
// Their emulated network devices may have stopped although their agents, which use another device, still
// respond.
func (l *Lab) PathDead() { l.dead = true }

// Clear takes down tunnels and undoes settings as Close does, but keeps the lab.
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

// Rediscover is like Reconnect, but for a router that may have been replaced. If the network does not belong
// to the lab, it also rediscovers the path and the devices on the path. Call Clear first.
func (l *Lab) Rediscover(ctx context.Context) error {
	_, _ = l.Reconnect(ctx) // errors are ignored, because they are expected here
	err := l.each(ctx, func(n *Node) error {
		if !n.HasAgent() && !n.HasDriver() {
			return nil
		}
		return l.gone(ctx, n)
	})
	if err == nil && l.again != nil {
		err = l.again(ctx)
	}

	return err
}

// each calls the function do for each node until it returns an error.
func (l *Lab) each(ctx context.Context, do func(n *Node) error) error {
	for _, name := range l.Nodes() {
		n, err := l.Node(ctx, name)
		if err == nil {
			err = do(n)
		}

		if err != nil {
			return fmt.Errorf("node %s: %w", name, err)
		}
	}
	return nil
}

// reconnect reconnects to nodes whose agents are gone, and returns the names of these nodes.
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
			// A guest replies only after it has booted.
			if err = host.Answers(ctx, fresh.connection()); err != nil {
				fresh.close()
			}
		}

		// An agent cannot undo settings that a driver made, or vice versa.
		if err == nil && fresh.HasAgent() != n.HasAgent() {
			fresh.close()
			err = fmt.Errorf("%w: it would be driven otherwise than before", host.ErrUnreachable)
		}

		if err != nil && l.network != nil && (l.network.mutual || name == l.Topology.Far) {
			l.network.lost = err
		}

		if err != nil {
			continue // keep the old node, because its next use reports the error
		}

		l.inherit(ctx, fresh, n)
		n.close()
		l.nodes[name] = fresh
		names = append(names, name)
	}

	return names, found
}

// inherit transfers the guard of the old node to the new one, and continues to call Touch at intervals. The
// guard still excludes other controllers. If the guard is gone, its remains are removed when the lab is
// closed.
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

// gone returns the reason why the agent of a node is unusable, or nil. If the agent is only slow, gone
// returns nil, because the settings made by the agent are still in effect. A guest that is not under load but
// does not respond counts as hung.
func (l *Lab) gone(ctx context.Context, n *Node) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if n.connection() == nil {
		if by, ok := n.Driver.(driver.Guarded); ok && n.guard.name != "" {
			if err := by.Touch(ctx, n.Host, n.guard.name); err != nil {
				return err
			}
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
		said := lastWords(consoleOf(l.dir, n.Name))
		// Ignore errors: the next trial shows whether this has helped.
		_ = n.connection().Invoke(ctx, verbKill, nil, nil)
		return fmt.Errorf("guest %s passes no packet, though its agent answers; its console%s", n.Name, said)
	case err == nil || errors.Is(err, host.ErrUnreachable):
		return err
	case n.Facts.Guest():
		return fmt.Errorf("guest %s hangs: no answer within %s; its console%s", n.Name, answerTime,
			lastWords(consoleOf(l.dir, n.Name)))
	}

	return nil
}

func tells(ctx context.Context, t *laid) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	_, err := t.Counters(ctx, false)
	return err == nil
}

// goneWithIt reports whether all remaining settings were made inside the lab, and none on the machine that
// hosted the lab.
func (l *Lab) goneWithIt() bool {
	return !slices.ContainsFunc(l.settings, func(t *applied) bool { return t.setting.Node == HostNode })
}

// verbEnds waits until a guest ends, and returns an error that describes how the guest ended. The process
// that runs the guest serves this verb.
var verbEnds = host.Verb("guest", "ends")

// verbKill kills a guest. The process that runs the guest serves this verb, and boots a new guest for the
// next connection.
var verbKill = host.Verb("guest", "kill")

// Guard waits until the guest of a router exits, and returns an error that contains the end of its console
// output. A guest that hangs is killed. Guard returns nil if ctx ends first or no router is a guest.
func (l *Lab) Guard(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	var first sync.Once
	var found error
	for _, name := range l.Topology.Routers {
		n, err := l.Node(ctx, name)
		if err != nil || !n.Facts.Guest() || n.connection() == nil {
			continue // if there was an error, the next use reports it
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

// ended waits until the guest of agent a has ended. It returns nil if ctx ends first, or if the other side
// does not support the verb.
func ended(ctx context.Context, a host.Agent) error {
	s, err := a.Open(ctx, verbEnds, nil)
	if err == nil {
		defer s.Close()
		err = host.Await(ctx, s, nil)
	}

	if ctx.Err() != nil || !errors.Is(err, host.ErrUnreachable) {
		return nil
	}

	return err
}
