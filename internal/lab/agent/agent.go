// Package agent implements the node's side of every family: it dispatches verbs to the node sides, holds
// their changes for as long as their sessions live, and gives tunnels and traffic ends processes of their
// own, so that their CPU time can be measured separately and their garbage collector stalls nobody.
package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
)

// Parts holds what a node can do: the node sides of the registry.
type Parts struct {
	Knobs    []knob.Knob
	Handlers map[string]host.Handler // served in the agent itself
	Isolated map[string]host.Handler // each served in a child process
	Sysctls  knob.Permission         // to set kernel settings; a guest's agent has it by its role
}

// Roles are the first argument of the program when it is started as an agent, as an agent's child, as a
// guest's agent on a line (see host.ConnectLine), as the agent installed on a real machine, and as that one's
// guard.
const (
	Role        = "agent"
	ChildRole   = "agent-child"
	LineRole    = "agent-line"
	MachineRole = "agent-machine"
	GuardRole   = "agent-guard"
)

// Arguments returns the program's arguments for a role, with a permission for kernel settings.
func Arguments(role string, sysctls knob.Permission) []string {
	if sysctls == "" {
		return []string{role}
	}
	return []string{role, string(sysctls)}
}

// Started parses what Arguments returned; role is "" where args name none. Arguments never permit everything:
// that is for a guest's agent.
func Started(args []string) (role string, sysctls knob.Permission, err error) {
	roles := []string{Role, ChildRole, LineRole, MachineRole, GuardRole}
	if len(args) == 0 || !slices.Contains(roles, args[0]) {
		return "", "", nil
	}

	if len(args) == 1 {
		return args[0], "", nil
	}

	sysctls = knob.Permission(args[1])
	_, err = knob.Permit(strings.Split(args[1], ","))
	if len(args) > 2 || err != nil && sysctls != knob.OfNamespace {
		return args[0], "", fmt.Errorf("start %s: want names of kernel settings, got %q", args[0], args[1:])
	}

	return args[0], sysctls, nil
}

// Silence bounds how long the agent of a real machine may hear nothing before it undoes its changes and
// leaves, and thus how long a change outlives the connection.
const Silence = 45 * time.Second

// unread bounds how long its output may wait for a reader.
const unread = 30 * time.Second

// Main serves the parts on a connection until it ends. The child role serves isolated verbs itself; the agent
// passes them on to a child.
//
// It catches SIGPIPE: otherwise the runtime would kill a program that writes to a broken standard output, and
// the handlers' changes would outlive their controller. Programs that we start get the default for a caught
// signal, but not for an ignored one.
func Main(ctx context.Context, role string, conn io.ReadWriteCloser, p Parts) error {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	var guarded *guard
	switch role {
	case LineRole:
		return host.ServeLine(ctx, conn, Handlers(role, p))
	case MachineRole:
		if err := removeOwnFile(); err != nil {
			return err
		}

		standard, err := host.Standard()
		if err != nil {
			return err
		}

		conn = host.Steady{Deadlined: standard, Silence: Silence, Unread: unread}
		if separate {
			guarded = &guard{sysctls: p.Sysctls}
			defer guarded.close()
		}
	}

	return host.Serve(ctx, conn, handlers(role, p, guarded))
}

// ownFolder is the prefix of an installed agent's directory.
const ownFolder = "chokepoint-"

// removeOwnFile removes the running program's file, and its directory if that was made for it: nothing stays
// on a machine however the program ends.
func removeOwnFile() error {
	file, err := os.Executable()
	if err != nil || !strings.HasPrefix(filepath.Base(filepath.Dir(file)), ownFolder) {
		return err
	}
	return errors.Join(os.Remove(file), os.Remove(filepath.Dir(file)))
}

// Handlers returns all verbs of an agent in a role.
func Handlers(role string, p Parts) map[string]host.Handler { return handlers(role, p, nil) }

func handlers(role string, p Parts, guarded *guard) map[string]host.Handler {
	handlers := map[string]host.Handler{}
	none := func(context.Context) error { return nil }
	may := none
	free := none
	machine := new(alone)
	switch {
	case role == MachineRole && guarded != nil: // others may reach it, too
		may = guarded.take
		free = guarded.free
	case role == MachineRole:
		may = machine.take
		free = machine.free
	case role == GuardRole:
		free, handlers[verbTake] = machine.free, asking(machine.take)
	}

	isolate := func(verb string, h host.Handler) {
		if role != ChildRole && separate {
			h = inChild(verb)
		}

		changes := verb == VerbHold || verb == knob.VerbServe || verb == knob.VerbJoin
		if changes || strings.HasPrefix(verb, host.FamilyTunnel) {
			h = after(may, h)
		}

		handlers[verb] = h
	}
	for verb, h := range p.Isolated {
		isolate(verb, h)
	}

	isolate(VerbHold, host.Asked(hold))
	maps.Copy(handlers, p.Handlers)
	if role == ChildRole {
		maps.Copy(handlers, knob.Companions())
	}

	own := role == LineRole || role == MachineRole || role == GuardRole
	if role == LineRole {
		p.Sysctls = knob.OfGuest
	}

	for _, k := range p.Knobs {
		handlers[host.Verb(host.FamilyKnob, k.Name())] = holdKnob(k, own, p.Sysctls, may, guarded)
	}

	maps.Copy(handlers, map[string]host.Handler{VerbCounters: host.Answering(readCounters),
		VerbEcho: host.Asked(echo), VerbReach: host.Answering(reach),
		VerbReassembly: host.Answering(readReassembly), VerbRoute: host.Answering(route),
		VerbFacing: host.Answering(facing), VerbFree: asking(free),
		VerbExec: host.Asked(execute), VerbArrange: host.Answering(arrange)})
	if role == LineRole {
		handlers[VerbPowerOff] = powerOff
	}

	return handlers
}

// after wraps a handler so that it serves only if may permits it.
func after(may func(context.Context) error, h host.Handler) host.Handler {
	return func(ctx context.Context, s host.Session) error {
		if err := may(ctx); err != nil {
			return err
		}
		return h(ctx, s)
	}
}

// asking wraps a function that returns nothing but an error.
func asking(f func(context.Context) error) host.Handler {
	return host.Answering(func(ctx context.Context, _ struct{}) (none struct{}, err error) {
		return none, f(ctx)
	})
}

// VerbFree fails if another controller has set something on the machine, or is about to.
const VerbFree = "node/free"

// VerbPowerOff ends a guest. Only a guest's agent has it.
const VerbPowerOff = "vm/poweroff"

// powerOff answers before it acts, because it cannot answer afterwards.
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

// inChild passes a session on to a process of its own.
func inChild(verb string) host.Handler {
	return host.Asked(func(ctx context.Context, s host.Session, first json.RawMessage) error {
		process, err := host.Spawn{Args: []string{ChildRole}}.Start()
		if err != nil {
			return fmt.Errorf("%s: %w", verb, err)
		}

		child := host.Connect(process)
		defer child.Close() // hangs up: the child undoes its changes and leaves
		// A child that does not leave by itself must not hold up the agent.
		defer context.AfterFunc(ctx, func() { child.Close() })()
		far, err := child.Open(ctx, verb, first)
		if err != nil {
			return err
		}

		err = host.Relay(s, far)
		if errors.Is(err, host.ErrUnreachable) && ctx.Err() == nil {
			return fmt.Errorf("%s: its process ended unexpectedly", verb)
		}

		return err
	})
}
