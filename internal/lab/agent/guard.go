package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
)

// guard is a process that holds the settings of a real machine's agent, from the first one on: when the agent
// is gone, however it ended, the guard puts everything back and leaves. The guard takes the machine for one
// controller, see alone, so that nobody else gets it before that is done.
type guard struct {
	sysctls knob.Permission // permission of the agent

	mu      sync.Mutex
	child   host.Agent // nil: nothing has been set yet
	process *host.Child
}

// verbTake is answered by a guard once it has the machine.
var verbTake = host.Verb("guard", "take")

// reach starts the process, or restarts it if it has ended.
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

// take makes the guard take the machine, unless another controller has it.
func (x *guard) take(ctx context.Context) error {
	child, err := x.reach(ctx)
	if err != nil {
		return err
	}
	return child.Invoke(ctx, verbTake, struct{}{}, nil)
}

// free reports, by an error, whether another controller has the machine, and starts no guard.
func (x *guard) free(ctx context.Context) error {
	x.mu.Lock()
	child := x.child
	x.mu.Unlock()
	if child == nil {
		return new(alone).free(ctx)
	}

	return child.Invoke(ctx, VerbFree, struct{}{}, nil)
}

// hold passes the session of a setting on.
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

// close waits until the guard has put everything back, however long that takes.
func (x *guard) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.child != nil {
		_ = x.process.HangUp() // the guard has ended then
		_ = x.process.Wait()
	}
}
