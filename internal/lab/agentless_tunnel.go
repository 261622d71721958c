package lab

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/lab/tunnel"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// agentlessEnd is an end of a tunnel on a node without an agent. It consists of settings that the node's
// driver applies for as long as the tunnel exists. They are journalled and guarded like other settings.
type agentlessEnd struct {
	l      *Lab
	n      *Node
	by     driver.Tunneling
	device string
	state  knob.End
	agent  host.Agent // set by hold
	stop   func()     // cancels the agent's context
}

// agentlessEnd returns the end that the node's driver can set up for a tunnel of the given kind, or nil if
// the driver does not support the kind.
func (l *Lab) agentlessEnd(n *Node, kind string, slot int) *agentlessEnd {
	by, ok := n.Driver.(driver.Tunneling)
	if !ok || !n.HasDriver() || kind != tunnel.WireGuard().Name() && kind != tunnel.WireGuardKernel().Name() {
		return nil
	}
	return &agentlessEnd{
		l:      l,
		n:      n,
		by:     by,
		device: slotDevice(slot),
		state:  knob.End{Behind: map[netip.Prefix]netip.Addr{}},
	}
}

// hold returns an agent that serves the end until release is called.
func (e *agentlessEnd) hold(ctx context.Context) host.Agent {
	ctx, e.stop = context.WithCancel(context.WithoutCancel(ctx))
	e.agent = tunnel.Agentless(ctx, tunnel.Router{
		Check:   e.setting(knob.NoEnd).check,
		Open:    e.open,
		Connect: e.connect,
		Read: func(ctx context.Context) (kernel.LinkCounters, int64, error) {
			return e.by.TunnelMoved(ctx, e.n.Reads(), e.device)
		},
		Send: func(ctx context.Context, to netip.Addr) error { return e.by.Ping(ctx, e.n.Host, to) },
	})
	return e.agent
}

// release undoes the end's settings. It does nothing for a nil end.
func (e *agentlessEnd) release(ctx context.Context) error {
	if e == nil {
		return nil
	}

	e.stop()
	err := e.agent.Close()
	ours := slices.DeleteFunc(slices.Clone(e.l.settings), func(t *applied) bool {
		return !t.ofTunnel || t.setting.Node != e.n.Name || t.setting.Port != e.device
	})
	return errors.Join(err, e.l.undo(ctx, ours))
}

// byHand returns the commands with which the owner can set up an end on a node, or "" if the driver does not
// know them.
func (l *Lab) byHand(n *Node, kind string, slot int) string {
	end := slices.Index(l.Topology.Tunnel[:], n.Name)
	if by, ok := n.Driver.(driver.ByHand); ok {
		return by.TunnelByHand(kind, l.plan.tunnel(slot, end)[0], l.plan.tunnel(slot, 1-end)[0])
	}
	return ""
}

func (e *agentlessEnd) setting(value knob.State) site {
	k := knob.TunnelEnd()
	return site{e.l, e.n, record.Setting{
		Knob:  k.Name(),
		Node:  e.n.Name,
		Port:  e.device,
		Value: string(value),
	}, k, knob.Place{Node: e.n.Name, Port: e.device}, value}
}

// set applies the current state of the end.
func (e *agentlessEnd) set(ctx context.Context) error {
	t, err := e.setting(e.state.State()).applyByDriver(ctx)
	if t != nil {
		t.ofTunnel = true
		e.l.settings = append(e.l.settings, t)
	}
	return err
}

func (e *agentlessEnd) open(ctx context.Context, s tunnel.Spec, inner []netip.Prefix) (string, error) {
	e.state.Port, e.state.MTU, e.state.Inner = uint16(s.Port), uint16(s.MTU), inner
	if err := e.set(ctx); err != nil {
		return "", err
	}
	return e.by.TunnelKey(ctx, e.n.Reads(), e.device)
}

func (e *agentlessEnd) connect(ctx context.Context, public string, endpoint netip.AddrPort,
	allowed []netip.Prefix) error {
	e.state.Key = public
	e.state.Endpoint = endpoint
	e.state.Allowed = allowed
	return e.set(ctx)
}
