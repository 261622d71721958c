package lab

import (
	"context"
	"errors"
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// checkByDriver asks a driven node whether it answers and has the setting at all. Whether it takes the value
// is only known once it is applied.
func checkByDriver(ctx context.Context, n *Node, s record.Setting) check.Answer {
	if a := n.Driver.Check(ctx, n.Host); a.State != check.Yes {
		return a
	}
	_, err := n.Driver.Read(ctx, n.Host, s)
	switch {
	case errors.Is(err, host.ErrUnsupported):
		return check.Not("%v", err)
	case err != nil:
		return check.CouldNotTell("%v", err)
	}
	return check.OK()
}

// applyByDriver applies a setting on a driven node: read, journal, apply, read back. What a failed attempt
// may have changed is undone.
func (l *Lab) applyByDriver(ctx context.Context, n *Node, s record.Setting, k knob.Knob, p knob.Place,
	want knob.State) (*applied, error) {
	before, err := n.Driver.Read(ctx, n.Host, s)
	if err != nil {
		return nil, err
	}
	put := func(ctx context.Context, value string) error {
		n, err := l.Node(ctx, s.Node) // it may have been renewed
		if err != nil {
			return err
		}
		s := s
		s.Value = value
		return n.Driver.Apply(ctx, n.Host, s)
	}
	t := &applied{setting: s, undo: func(ctx context.Context) error { return put(ctx, before) }}
	t.again = t.undo
	if t.seq, err = l.remember(s, s.Knob, p, before, string(want)); err != nil {
		return nil, err
	}
	if err = put(ctx, string(want)); err == nil {
		var got string
		got, err = n.Driver.Read(ctx, n.Host, s)
		if err == nil && !knob.Same(k, want, knob.State(got)) {
			err = fmt.Errorf("read back %s", got)
		}
	}
	if err == nil {
		return t, nil
	}
	return l.failed(ctx, t, err)
}
