package lab

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/lab/tunnel"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// drivenEnd is the end of a tunnel on a node without an agent. It consists of settings of the node's driver,
// which are in force for as long as the tunnel is: they are journalled and guarded like all others.
type drivenEnd struct {
	l      *Lab
	n      *Node
	by     driver.Tunneling
	device string
	byHand string
	state  knob.End
}

// drive has this process hold the ends that drivers make, in a slot, until what it returns is called, which
// undoes them. A driven router has to know the routes as well.
func (l *Lab) drive(ctx context.Context, kind string, slot int, routes []agent.Route, ends ...*tunnel.End) (
	leave func(context.Context) error, err error) {
	var leaves []func(context.Context) error
	for _, end := range ends {
		if !end.Driven {
			continue
		}
		n, err := l.Node(ctx, end.Node)
		if err != nil {
			return nil, err
		}
		e := &drivenEnd{l: l, n: n, by: n.Driver.(driver.Tunneling), device: slotDevice(slot),
			byHand: l.byHand(n, kind, slot)}
		for _, r := range routes {
			e.state.Behind = append(e.state.Behind, knob.Behind{To: r.To, Via: r.Via})
		}
		end.Agent = tunnel.Driven(context.WithoutCancel(ctx), e)
		leaves = append(leaves, func(ctx context.Context) error {
			return errors.Join(end.Agent.Close(), e.undo(ctx))
		})
	}
	return func(ctx context.Context) (err error) {
		for _, leave := range leaves {
			err = errors.Join(err, leave(ctx))
		}
		return err
	}, nil
}

// byHand is what an owner types for an end on a node, in a slot; nothing where no driver knows.
func (l *Lab) byHand(n *Node, kind string, slot int) string {
	end := slices.Index(l.Topology.Tunnel[:], n.Name)
	if by, ok := n.Driver.(driver.Restricted); ok && end >= 0 {
		return by.TunnelByHand(kind, l.plan.tunnel(slot, end)[0], l.plan.tunnel(slot, 1-end)[0])
	}
	return ""
}

func (e *drivenEnd) driven(value knob.State) driven {
	k := knob.TunnelEnd()
	return driven{e.l, e.n, record.Setting{Knob: k.Name(), Node: e.n.Name, Port: e.device,
		Value: string(value)}, k, knob.Place{Node: e.n.Name, Port: e.device}}
}

// set makes the end as it is to be now.
func (e *drivenEnd) set(ctx context.Context) error {
	value := e.state.State()
	if _, err := knob.ParseEnd(string(value)); err != nil {
		return err
	}
	t, err := e.driven(value).apply(ctx, value)
	if t != nil {
		t.ofTunnel = true
		e.l.settings = append(e.l.settings, t)
	}
	return err
}

func (e *drivenEnd) undo(ctx context.Context) error {
	var ours []*applied
	for _, t := range e.l.settings {
		if t.ofTunnel && t.setting.Node == e.n.Name && t.setting.Port == e.device {
			ours = append(ours, t)
		}
	}
	return e.l.undo(ctx, ours)
}

// Check implements tunnel.Router.
func (e *drivenEnd) Check(ctx context.Context) check.Answer {
	a := e.driven(knob.NoEnd).check(ctx)
	if a.State == check.No {
		a.Reason += e.byHand
	}
	return a
}

// Open implements tunnel.Router.
func (e *drivenEnd) Open(ctx context.Context, s tunnel.Spec, inner []netip.Prefix) (string, error) {
	e.state.Port, e.state.MTU, e.state.Inner = s.Port, s.MTU, inner
	if err := e.set(ctx); err != nil {
		return "", err
	}
	return e.by.TunnelKey(ctx, e.n.Host, e.device)
}

// Connect implements tunnel.Router.
func (e *drivenEnd) Connect(ctx context.Context, public string, endpoint netip.AddrPort,
	allowed []netip.Prefix) error {
	e.state.Peer = &knob.Peer{Key: public, Endpoint: endpoint, Allowed: allowed}
	return e.set(ctx)
}

// Read implements tunnel.Router.
func (e *drivenEnd) Read(ctx context.Context) (kernel.LinkCounters, int64, error) {
	return e.by.TunnelMoved(ctx, e.n.Host, e.device)
}

// Send implements tunnel.Router.
func (e *drivenEnd) Send(ctx context.Context, to []netip.Addr) error {
	return e.by.Ping(ctx, e.n.Host, to)
}

// needs is what may be missing where a tunnel with a driven end carries nothing.
func (l *Lab) needs(ctx context.Context, slot int, ends ...tunnel.End) string {
	for _, end := range ends {
		if n, err := l.Node(ctx, end.Node); err == nil && end.Driven {
			return n.Driver.(driver.Tunneling).TunnelNeeds(slotPort(slot))
		}
	}
	return ""
}

// canDrive reports whether a node's driver makes an end of a kind of tunnel.
func (n *Node) canDrive(kind string) bool {
	_, ok := n.Driver.(driver.Tunneling)
	return ok && n.HasDriver() && slices.Contains(tunnel.DrivenKinds(), kind)
}
