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

// driven is a setting of a node that a driver sets.
type driven struct {
	l *Lab
	n *Node
	s record.Setting
	k knob.Knob
	p knob.Place
}

// check asks the node whether it answers and has the setting at all. Whether it takes the value is only known
// once it is applied.
func (d driven) check(ctx context.Context) check.Answer {
	if a := d.n.Driver.Check(ctx, d.n.Reads()); a.State != check.Yes {
		return a
	}
	_, err := d.read(ctx, d.s.Value)
	if _, ok := d.n.Driver.(driver.Replacing); ok {
		_, err = d.now(ctx, knob.State(d.s.Value))
	}
	switch {
	case errors.Is(err, host.ErrUnsupported):
		return check.Not("%v", err)
	case err != nil:
		return check.CouldNotTell("%v", err)
	}
	return check.OK()
}

// on are the settings that the driver is asked for, in its words: on a machine of its own, which has other
// devices as well, one for each device under test.
func (d driven) on(value string) (out []record.Setting, err error) {
	s := d.s
	s.Port, s.Value = d.p.Port, value
	switch {
	case !d.n.Facts.OwnMachine() || s.Port != "":
		return []record.Setting{s}, nil
	case !knob.OfPorts(d.k):
		s.Port = d.p.WAN
		return []record.Setting{s}, nil
	}
	each, err := knob.Each(knob.State(value), func() ([]string, error) { return d.p.Ports, nil })
	for _, dev := range d.p.Ports {
		s.Port, s.Value = dev, string(each[dev])
		out = append(out, s)
	}
	return out, err
}

// read asks for the state; one who is asked about a value may say how else to come by that.
func (d driven) read(ctx context.Context, value string) (knob.State, error) {
	return d.each(ctx, value, d.n.Driver.Read)
}

func (d driven) each(ctx context.Context, value string, read func(context.Context, host.Host,
	record.Setting) (string, error)) (knob.State, error) {
	list, err := d.on(value)
	if err != nil {
		return "", err
	}
	each := map[string]knob.State{}
	for _, s := range list {
		v, err := read(ctx, d.n.Reads(), s)
		if err != nil {
			return "", err
		}
		each[s.Port] = knob.State(v)
	}
	return knob.OfAll(each), nil
}

// now reads what a state would take the place of.
func (d driven) now(ctx context.Context, want knob.State) (knob.State, error) {
	by, ok := d.n.Driver.(driver.Replacing)
	if !ok {
		return d.read(ctx, "")
	}
	return d.each(ctx, string(want), by.ReadFor)
}

// put applies a value on the node as it is now: it may have been renewed.
func (d driven) put(ctx context.Context, value knob.State) error {
	n, err := d.l.Node(ctx, d.s.Node)
	if err != nil {
		return err
	}
	d.n = n
	list, err := d.on(string(value))
	for _, s := range list {
		if err == nil {
			err = n.Driver.Apply(ctx, n.Host, s)
		}
	}
	return err
}

// back puts back what was there before, unless that is still there: what could not be changed may not be
// writable at all.
func (d driven) back(ctx context.Context, before knob.State) error {
	n, err := d.l.Node(ctx, d.s.Node)
	if err != nil {
		return err
	}
	d.n = n
	if now, err := d.now(ctx, before); err == nil && now == before {
		return nil
	}
	return d.put(ctx, before)
}

// apply applies a setting: read, guard, journal, apply, read back. What a failed attempt may have changed is
// undone.
func (d driven) apply(ctx context.Context, want knob.State) (*applied, error) {
	before, err := d.now(ctx, want)
	if err != nil {
		return nil, err
	}
	t := &applied{setting: d.s, undo: func(ctx context.Context) error { return d.back(ctx, before) }}
	t.again = t.undo
	if t.guarded, err = d.on(string(before)); err != nil {
		return nil, err
	}
	if err = d.startGuard(ctx); err != nil {
		return nil, err
	}
	if t.seq, err = d.l.remember(d.s, d.n, d.s.Knob, d.p, string(before), string(want)); err != nil {
		return nil, err
	}
	if err = d.arm(ctx, t); err == nil {
		err = d.put(ctx, want)
	}
	if err == nil {
		var got knob.State
		got, err = d.now(ctx, want)
		if err == nil && !d.k.Same(want, got) {
			err = fmt.Errorf("read back %s", got)
		}
	}
	if err == nil {
		return t, nil
	}
	return d.l.failed(ctx, t, err)
}

// guarded is the driver that leaves a guard on a machine of its own, should the contact be lost.
func (d driven) guarded() (driver.Guarded, bool) {
	by, ok := d.n.Driver.(driver.Guarded)
	return by, ok && d.n.Facts.OwnMachine()
}

// startGuard leaves a guard on the node that has nothing to undo yet, and journals it: restore dismisses it.
// One that is not as it should be is dismissed, since nobody would keep in touch with it.
func (d driven) startGuard(ctx context.Context) error {
	by, ok := d.guarded()
	if !ok || d.n.guard.name != "" {
		return nil
	}
	name, err := by.Guard(ctx, d.n.Host, "", nil, agent.Silence)
	seq := 0
	if err == nil {
		seq, err = d.l.journal.Add(journal.Entry{Kind: journal.KindGuard, Lab: d.l.ID, Node: d.n.Name,
			Driver: d.n.Driver.Name(), Guard: name})
	}
	if err == nil {
		d.n.guard = guard{name, seq}
		d.l.regularly(func(ctx context.Context) error { return by.Touch(ctx, d.n.Host, name) })
		return nil
	}
	if name == "" {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drivenUnwindTime)
	defer cancel()
	left := by.Dismiss(ctx, d.n.Host, name)
	if left != nil {
		d.n.past = append(d.n.past, guard{name: name})
	}
	return errors.Join(err, left)
}

// arm has the node's guard undo what is set there, and what is to be set.
func (d driven) arm(ctx context.Context, next *applied) error {
	by, ok := d.guarded()
	if !ok {
		return nil
	}
	var undo []record.Setting
	for _, t := range append(slices.Clone(d.l.settings), next) {
		if t.setting.Node == d.s.Node {
			undo = append(undo, t.guarded...)
		}
	}
	_, err := by.Guard(ctx, d.n.Host, d.n.guard.name, undo, agent.Silence)
	return err
}

// dismiss ends the node's guard, if it has one, and removes what those before it have left.
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
	n.guard, n.past = guard{}, nil
	return err
}

// guardGone says why the node's guard is not there any more.
func (n *Node) guardGone(ctx context.Context) error {
	by, ok := n.Driver.(driver.Guarded)
	if !ok || n.guard.name == "" {
		return nil
	}
	return by.Touch(ctx, n.Host, n.guard.name)
}
