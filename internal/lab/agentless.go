package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// site is one setting of one node. The node's agent or driver applies it.
type site struct {
	l    *Lab
	n    *Node
	s    record.Setting
	k    knob.Knob
	p    knob.Place
	want knob.State
}

// turn sends a knob request to the node's agent in order to check a state or to apply it permanently.
func (x site) turn(ctx context.Context, t agent.KnobRequest) (held agent.KnobReply, err error) {
	t.Place = x.p
	err = x.n.Agent.Invoke(ctx, x.verb(), t, &held)
	return held, err
}

// check reports whether the node can apply the setting. It cannot predict whether a driver accepts the value.
func (x site) check(ctx context.Context) check.Answer {
	if !x.n.HasDriver() {
		got, err := x.turn(ctx, agent.KnobRequest{Want: x.want, Check: true})
		switch {
		case err != nil:
			return check.CouldNotTell("%v", err)
		case got.Answer == nil:
			return check.CouldNotTell("node %s did not answer", x.n.Name)
		}
		return *got.Answer
	}

	a := x.n.Driver.Check(ctx, x.n.Reads())
	if a.State != check.Yes {
		return a
	}

	_, err := x.each(ctx, x.s.Value)
	switch {
	case errors.Is(err, host.ErrUnsupported):
		return check.Not("%v", err)
	case err != nil:
		return check.CouldNotTell("%v", err)
	}

	return check.OK()
}

// on returns the settings to pass to the driver. On a real machine, the settings name each device under test,
// because the machine also has other devices.
func (x site) on(value string) (out []record.Setting, err error) {
	s := x.s
	s.Port = x.p.Port
	s.Value = value
	switch {
	case !x.n.Facts.OwnMachine() || s.Port != "":
		return []record.Setting{s}, nil
	case !knob.OfPorts(x.k):
		s.Port = x.p.WAN
		return []record.Setting{s}, nil
	}

	each := knob.Each(knob.State(value), x.p.Ports)
	for _, dev := range x.p.Ports {
		s.Port, s.Value = dev, string(each[dev])
		out = append(out, s)
	}

	return out, nil
}

// each returns the state that value would replace. The driver reads this state.
func (x site) each(ctx context.Context, value string) (knob.State, error) {
	list, err := x.on(value)
	if err != nil {
		return "", err
	}

	each := map[string]knob.State{}
	for _, s := range list {
		v, err := x.n.Driver.Read(ctx, x.n.Reads(), s)
		if err != nil {
			return "", err
		}

		each[s.Port] = knob.State(v)
	}

	return knob.OfAll(each), nil
}

// now returns the state that want would replace. It ends the agent's session after the first reply, so the
// agent changes nothing.
func (x site) now(ctx context.Context, want knob.State) (knob.State, error) {
	if x.n.HasDriver() {
		return x.each(ctx, string(want))
	}

	s, err := x.open(ctx, want)
	if err != nil {
		return "", err
	}
	defer s.Close()
	var held agent.KnobReply
	err = host.Await(ctx, s, &held)
	return held.State, err
}

// open starts a session in which the node's agent can apply a state.
func (x site) open(ctx context.Context, want knob.State) (host.Session, error) {
	return x.n.Agent.Open(ctx, x.verb(), agent.KnobRequest{Place: x.p, Want: want})
}

func (x site) verb() string { return host.Verb(host.FamilyKnob, x.k.Name()) }

// put applies a value over the node's current connection. After a Reconnect, this is not the connection of
// x.n.
func (x site) put(ctx context.Context, value knob.State) error {
	n, err := x.l.Node(ctx, x.s.Node)
	if err != nil {
		return err
	}

	x.n = n
	if !n.HasDriver() {
		_, err := x.turn(ctx, agent.KnobRequest{Want: value, Restore: true})
		return err
	}

	list, err := x.on(string(value))
	for _, s := range list {
		if err == nil {
			err = n.Driver.Apply(ctx, n.Host, s)
		}
	}

	return err
}

// keep applies the setting permanently and reads it back.
func (x site) keep(ctx context.Context) (err error) {
	var held agent.KnobReply
	if !x.n.HasDriver() {
		held, err = x.turn(ctx, agent.KnobRequest{Want: x.want, Restore: true})
	} else if err = x.put(ctx, x.want); err == nil {
		held.State, err = x.now(ctx, x.want)
	}

	if err == nil && !x.k.Same(x.want, held.State) {
		err = fmt.Errorf("read back %s", held.State)
	}

	return err
}

// back restores the previous state. It writes nothing if that state is already in effect, because a setting
// that could not be changed may not be writable at all.
func (x site) back(ctx context.Context, before knob.State) error {
	n, err := x.l.Node(ctx, x.s.Node)
	if err != nil {
		return err
	}

	x.n = n
	if now, err := x.now(ctx, before); err == nil && now == before {
		return nil
	}

	return x.put(ctx, before)
}

// applyByDriver applies a setting with the node's driver: it reads the state, updates the guard, writes the
// journal, applies the value and reads it back. If a step fails, applyByDriver undoes what may have been
// changed.
func (x site) applyByDriver(ctx context.Context) (*applied, error) {
	before, err := x.now(ctx, x.want)
	if err != nil {
		return nil, err
	}

	t := &applied{setting: x.s, undo: func(ctx context.Context) error { return x.back(ctx, before) }}
	t.again = t.undo
	if t.guarded, err = x.on(string(before)); err != nil {
		return nil, err
	}

	if err = x.startGuard(ctx); err != nil {
		return nil, err
	}

	if t.seq, err = x.remember(x.s.Knob, before); err != nil {
		return nil, err
	}

	if err = x.arm(ctx, t); err == nil {
		err = x.keep(ctx)
	}

	if err == nil {
		return t, nil
	}

	return x.l.failed(ctx, t, err)
}

// guarded returns the node's driver if the driver can install a guard and the node is a real machine. Only
// the connection to a real machine may be lost.
func (x site) guarded() (driver.Guarded, bool) {
	by, ok := x.n.Driver.(driver.Guarded)
	return by, ok && x.n.Facts.OwnMachine()
}

// startGuard installs a guard that has nothing to undo yet, and adds it to the journal, so that lab restore
// can dismiss it. If it cannot write the journal, startGuard dismisses the guard, because nothing would call
// Touch for it.
func (x site) startGuard(ctx context.Context) error {
	by, ok := x.guarded()
	if !ok || x.n.guard.name != "" {
		return nil
	}

	name, err := by.Guard(ctx, x.n.Host, "", nil, agent.Silence)
	seq := 0
	if err == nil {
		seq, err = x.l.journal.Add(journal.Entry{
			Kind:   journal.KindGuard,
			Lab:    x.l.ID,
			Node:   x.n.Name,
			Driver: x.n.Driver.Name(),
			Guard:  name,
		})
	}

	if err == nil {
		x.n.guard = guard{name, seq}
		x.l.regularly(func(ctx context.Context) error { return by.Touch(ctx, x.n.Host, name) })
		return nil
	}

	if name == "" {
		return err
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), agentlessUnwindTime)
	defer cancel()
	left := by.Dismiss(ctx, x.n.Host, name)
	if left != nil {
		x.n.past = append(x.n.past, guard{name: name})
	}

	return errors.Join(err, left)
}

// arm makes the node's guard undo all settings of the node, including next, if the connection is lost.
func (x site) arm(ctx context.Context, next *applied) error {
	by, ok := x.guarded()
	if !ok {
		return nil
	}

	var undo []record.Setting
	for _, t := range append(slices.Clone(x.l.settings), next) {
		if t.setting.Node == x.s.Node {
			undo = append(undo, t.guarded...)
		}
	}

	_, err := by.Guard(ctx, x.n.Host, x.n.guard.name, undo, agent.Silence)
	return err
}

// dismiss removes the node's guard and the remains of earlier guards.
func (n *Node) dismiss(ctx context.Context, j *journal.Journal) (err error) {
	by, ok := n.Driver.(driver.Guarded)
	if !ok {
		return nil
	}

	if n.guard.name != "" {
		n.past = append(n.past, n.guard)
	}

	for _, g := range n.past {
		gone := by.Dismiss(ctx, n.Host, g.name)
		if gone == nil {
			gone = j.Done(g.seq)
		}

		err = errors.Join(err, gone)
	}

	n.guard = guard{}
	n.past = nil
	return err
}
