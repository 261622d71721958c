package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
)

// ErrRole means that a role was started with invalid arguments.
var ErrRole = errors.New("wrong arguments")

// Serve runs a role. To create a lab, the program starts itself in roles: holder, anchor, agent, child of an
// agent, and agent of a guest. The role communicates over standard input and output. Serve returns when the
// role ends. The result handled is false if args do not name a role. Every program that creates labs must
// call Serve first.
func Serve(args []string) (handled bool, err error) {
	if len(args) == 0 {
		return false, nil
	}

	role, sysctls, err := agent.Started(args)
	if err != nil {
		return true, fmt.Errorf("%w: %w", ErrRole, err)
	}

	if role != "" {
		parts := node.Parts()
		parts.Sysctls = sysctls
		return true, agent.Main(context.Background(), role, node.Standard{}, parts)
	}

	carries := map[string]func(node string) error{
		lab.AnchorRole:  lab.AnchorMain,
		lab.MachineRole: lab.MachineMain,
	}[args[0]]
	switch {
	case args[0] == lab.HolderRole:
		return true, lab.HolderMain()
	case carries == nil:
		return false, nil
	case len(args) != 2:
		return true, fmt.Errorf("start %s: %w: want the node's name, got %q", args[0], ErrRole, args[1:])
	}

	return true, carries(args[1])
}
