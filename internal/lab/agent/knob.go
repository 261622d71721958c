package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
)

// KnobRequest is the first message of a knob session. The node replies with the previous state, and waits
// while the controller writes that state to its journal. On the controller's next message, the node applies
// Want and replies with the state that it reads back. When the session ends, for whatever reason, the node
// restores the previous state.
//
// If Restore is set, the node applies Want permanently and ends the session. The controller uses this to undo
// a setting that another session could not undo.
type KnobRequest struct {
	Place   knob.Place `json:"place"`
	Want    knob.State `json:"want"`
	Restore bool       `json:"restore,omitempty"`
	Check   bool       `json:"check,omitempty"` // only report whether the node can apply Want
}

// KnobReply is the node's reply in each step of a knob session.
type KnobReply struct {
	State  knob.State    `json:"state"`
	Answer *check.Answer `json:"answer,omitempty"`
}

// holdKnob returns the handler for a knob. machine reports whether the agent controls a whole machine, real
// or virtual, including its kernel. sysctls is the permission with which the agent was started. A request
// cannot override machine or sysctls. The handler calls the function may before it changes anything. If
// guarded is not nil, the guard applies the setting.
func holdKnob(k knob.Knob, machine bool, sysctls knob.Permission, may func(context.Context) error,
	guarded *guard) host.Handler {
	return host.Asked(func(ctx context.Context, s host.Session, t KnobRequest) error {
		t.Place.OwnKernel = t.Place.OwnKernel && machine
		t.Place.Sysctls = sysctls
		if t.Check {
			a := k.Check(ctx, t.Place, t.Want)
			return s.Send(KnobReply{Answer: &a})
		}

		if err := may(ctx); err != nil {
			return err
		}

		if t.Restore {
			got, err := applied(ctx, k, t)
			if err != nil {
				return err
			}
			return s.Send(KnobReply{State: got})
		}

		if guarded != nil {
			return guarded.hold(ctx, s, k.Name(), t)
		}

		return turn(ctx, s, k, t)
	})
}

// applied applies t.Want and returns the state that it reads back.
func applied(ctx context.Context, k knob.Knob, t KnobRequest) (knob.State, error) {
	if err := k.Apply(ctx, t.Place, t.Want); err != nil {
		return "", err
	}
	return k.Read(ctx, t.Place, t.Want)
}

func turn(ctx context.Context, s host.Session, k knob.Knob, t KnobRequest) (err error) {
	before, err := k.Read(ctx, t.Place, t.Want)
	if err != nil {
		return err
	}

	if err := s.Send(KnobReply{State: before}); err != nil {
		return err
	}

	var proceed struct{}
	if err := s.Recv(&proceed); err != nil {
		return host.Quiet(err) // the end of the session is not an error, because nothing was changed
	}

	// ctx has usually been cancelled when the change is undone.
	undo := context.WithoutCancel(ctx)
	defer func() {
		err = host.Quiet(err)
		if undoErr := k.Apply(undo, t.Place, before); undoErr != nil {
			err = errors.Join(err, fmt.Errorf("%w: %w", host.ErrNotUndone, undoErr))
		}
	}()
	got, err := applied(ctx, k, t)
	if err != nil {
		return err
	}

	if !k.Same(t.Want, got) {
		return fmt.Errorf("apply %s=%s on %s %s: read back %s", k.Name(), t.Want, t.Place.Node, t.Place.Port,
			got)
	}

	leave, err := accompany(ctx, k, t)
	defer leave()
	if err != nil {
		return err
	}

	if err := s.Send(KnobReply{State: got}); err != nil {
		return err
	}

	return s.Recv(&proceed)
}

// accompany starts a child process for each companion of a state, and waits until all of them have started.
// The processes end when this process ends or leave is called. leave must be called before the setting is
// undone.
func accompany(ctx context.Context, k knob.Knob, t KnobRequest) (leave func(), err error) {
	var children []host.Agent
	leave = func() {
		for _, c := range children {
			c.Close() // makes the child exit, because its input is closed
		}
	}
	a, ok := k.(knob.Accompanied)
	if !ok {
		return leave, nil
	}

	for _, c := range a.Companions(t.Place, t.Want) {
		process, err := host.Spawn{Args: []string{ChildRole}, Bound: true}.Start()
		if err != nil {
			return leave, fmt.Errorf("%s: %w", c.Verb, err)
		}

		child := host.Connect(process)
		children = append(children, child)
		s, err := child.Open(ctx, c.Verb, c.Task)
		if err == nil {
			err = host.Await(ctx, s, nil)
		}

		if err != nil {
			return leave, fmt.Errorf("%s: %w", c.Verb, err)
		}
	}

	return leave, nil
}
