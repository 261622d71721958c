package lab

import (
	"context"
	"errors"
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// checkByCommand asks a system whether it answers and has the setting at all. Whether it takes the value is
// only known once it is applied.
func checkByCommand(ctx context.Context, n *Node, s record.Setting) check.Answer {
	if a := n.System.Check(ctx, n.Host); a.State != check.Yes {
		return a
	}
	_, err := n.System.Read(ctx, n.Host, s)
	switch {
	case errors.Is(err, host.ErrUnsupported):
		return check.Not("%v", err)
	case err != nil:
		return check.CouldNotTell("%v", err)
	}
	return check.OK()
}

// turnByCommand applies a setting on a node without an agent: read, journal, apply, read back. What a
// failed attempt may have changed is undone.
func (l *Lab) turnByCommand(ctx context.Context, n *Node, s record.Setting, k knob.Knob,
	want knob.State) (*turned, error) {
	before, err := n.System.Read(ctx, n.Host, s)
	if err != nil {
		return nil, err
	}
	t := &turned{setting: s, undo: func(ctx context.Context) error { return command(ctx, n, s, before) }}
	if l.journal != nil {
		t.seq, err = l.journal.Add(journal.Entry{Kind: journal.KindSetting, Lab: l.ID, Node: s.Node,
			Knob:   s.Knob,
			Before: before, After: string(want)})
		if err != nil {
			return nil, err
		}
	}
	if err = command(ctx, n, s, string(want)); err == nil {
		var got string
		got, err = n.System.Read(ctx, n.Host, s)
		if err == nil && !knob.Same(k, want, knob.State(got)) {
			err = fmt.Errorf("read back %s", got)
		}
	}
	if err == nil {
		return t, nil
	}
	return l.failed(ctx, t, err)
}

func command(ctx context.Context, n *Node, s record.Setting, value string) error {
	s.Value = value
	return n.System.Apply(ctx, n.Host, s)
}
