package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// keeper is a process in which the agent of a machine of its own has its settings held, from the first one
// on: when the agent is gone, however it ended, the keeper puts everything back and leaves.
type keeper struct {
	mu      sync.Mutex
	child   host.Agent // nil: nothing was set yet
	process *host.Child
}

// reach starts the process, anew where it has ended.
func (x *keeper) reach(ctx context.Context) (host.Agent, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.child != nil {
		if _, _, err := x.child.Clock(ctx); !errors.Is(err, host.ErrUnreachable) {
			return x.child, err
		}
		x.child.Close()
		x.child = nil
	}
	process, err := host.Spawn{Args: []string{KeeperRole}}.Start()
	if err != nil {
		return nil, fmt.Errorf("start the keeper: %w", err)
	}
	x.child, x.process = host.Connect(process), process
	return x.child, nil
}

// hold passes the session of a setting on.
func (x *keeper) hold(ctx context.Context, s host.Session, name string, t Turn) error {
	child, err := x.reach(ctx)
	if err != nil {
		return err
	}
	far, err := child.Open(ctx, host.Verb(host.FamilyKnob, name), t)
	if err != nil {
		return err
	}
	defer far.Close()
	stop := context.AfterFunc(ctx, func() { far.Close() })
	defer stop()
	err = host.Relay(s, far)
	if errors.Is(err, host.ErrUnreachable) && ctx.Err() == nil {
		return fmt.Errorf("set %s: the process that held it ended unexpectedly", name)
	}
	return err
}

// close waits until the keeper has put everything back, however long that takes.
func (x *keeper) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.child != nil {
		_ = x.process.HangUp() // it has ended then
		_ = x.process.Wait()
	}
}
