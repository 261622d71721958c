package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
)

// guard is a child process that applies all settings for the agent of a real machine. When the agent has
// ended, for whatever reason, the guard undoes the settings and exits. The guard also reserves the machine
// for its controller (see alone), so no other controller can reserve the machine before the settings are
// undone.
type guard struct {
	sysctls knob.Permission // permission of the agent

	mu      sync.Mutex
	child   host.Agent // nil before the first setting
	process *host.Child
}

// verbTake makes a guard reserve the machine.
var verbTake = host.Verb("guard", "take")

// reach returns a connection to the guard's process. It starts the process if it is not running.
func (x *guard) reach(ctx context.Context) (host.Agent, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.child != nil {
		if err := host.Answers(ctx, x.child); !errors.Is(err, host.ErrUnreachable) {
			return x.child, err
		}

		x.child.Close()
		x.child = nil
	}

	process, err := host.Spawn{Args: Arguments(GuardRole, x.sysctls)}.Start()
	if err != nil {
		return nil, fmt.Errorf("start the guard: %w", err)
	}

	x.child = host.Connect(process)
	x.process = process
	return x.child, nil
}

// take makes the guard reserve the machine. It returns an error if another controller has it.
func (x *guard) take(ctx context.Context) error {
	child, err := x.reach(ctx)
	if err != nil {
		return err
	}
	return child.Invoke(ctx, verbTake, struct{}{}, nil)
}

// free returns an error if another controller has reserved the machine. It does not start the guard's
// process.
func (x *guard) free(ctx context.Context) error {
	x.mu.Lock()
	child := x.child
	x.mu.Unlock()
	if child == nil {
		return new(alone).free(ctx)
	}

	return child.Invoke(ctx, VerbFree, struct{}{}, nil)
}

// hold relays a knob session to the guard.
func (x *guard) hold(ctx context.Context, s host.Session, name string, t KnobRequest) error {
	child, err := x.reach(ctx)
	if err != nil {
		return err
	}

	far, err := child.Open(ctx, host.Verb(host.FamilyKnob, name), t)
	if err != nil {
		return err
	}
	defer far.Close()
	defer context.AfterFunc(ctx, func() { far.Close() })()
	err = host.Relay(s, far)
	if errors.Is(err, host.ErrUnreachable) {
		return fmt.Errorf("set %s: %w: the guard that held it has ended", name, host.ErrNotUndone)
	}

	return err
}

// close waits, without a time limit, until the guard has undone all settings.
func (x *guard) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.child != nil {
		_ = x.process.HangUp() // the error is ignored, because HangUp fails only if the guard has exited
		_ = x.process.Wait()
	}
}
