package agent

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// aloneName is that of an abstract socket, which nobody else of the network namespace can have until the
// process that has it ends (unix(7)).
const aloneName = "@chokepoint-agent-machine"

// alone takes a machine for one controller that sets something there, until the agent ends.
type alone struct {
	mu   sync.Mutex
	lock net.Listener
}

func (a *alone) take() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lock != nil {
		return nil
	}
	l, err := net.Listen("unix", aloneName)
	if errors.Is(err, syscall.EADDRINUSE) {
		return check.WithHint(errors.New("another controller has set something on this machine"),
			"wait until its run has ended")
	}
	if err != nil {
		return fmt.Errorf("take the machine for one controller: %w", err)
	}
	a.lock = l
	return nil
}
