package agent

import (
	"context"
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// VerbPowerOff ends a guest. Only a guest's agent has it.
const VerbPowerOff = "vm/poweroff"

// powerOff answers before it acts: nothing can be said after.
func powerOff(_ context.Context, s host.Session) error {
	if err := s.Recv(nil); err != nil {
		return err
	}
	tell, err := guestInit()
	if err != nil {
		return err
	}
	if err := s.Send(struct{}{}); err != nil {
		return err
	}
	return tell()
}

// PowerOff asks a guest to power itself off, and returns when it has agreed. The connection ends soon
// after.
func PowerOff(ctx context.Context, a host.Agent) error {
	s, err := a.Open(ctx, VerbPowerOff, struct{}{})
	if err != nil {
		return err
	}
	defer s.Close()
	if err := host.Await(ctx, s, nil); err != nil {
		return fmt.Errorf("power off: %w", err)
	}
	return nil
}
