package registry

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
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

	switch args[0] {
	case lab.HolderRole:
		err = lab.HolderMain(os.Stdin, os.Stdout)
	case lab.AnchorRole, lab.MachineRole:
		if len(args) != 2 {
			return true, fmt.Errorf("start %s: %w: want the node's name, got %q", args[0], ErrRole, args[1:])
		}

		if args[0] == lab.MachineRole {
			return true, lab.MachineMain(args[1], os.Stdin, os.Stdout)
		}

		err = lab.AnchorMain(args[1], os.Stdin, os.Stdout, agent.Arguments(agent.Role, knob.OfNamespace))
	default:
		return false, nil
	}

	return true, err
}
