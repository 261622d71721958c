// Package agent implements the node side: it maps verbs to handlers and keeps changes in effect while their
// sessions last. Tunnels and traffic endpoints run in child processes, so that their CPU time is measured
// separately and their garbage collectors do not delay other tasks.
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

// Parts lists the knobs and handlers of the registry that run on nodes.
type Parts struct {
	Knobs    []knob.Knob
	Handlers map[string]host.Handler // verbs served by the agent itself
	Isolated map[string]host.Handler // verbs that a separate child process serves in each session
	Sysctls  knob.Permission         // kernel settings that may be changed; all in a guest's agent
}

// These are the roles of the program. Its first argument selects the role: an agent, a child of an agent, the
// agent of a guest on a line (see host.ConnectLine), the agent installed on a real machine, and the guard of
// such an agent.
const (
	Role        = "agent"
	ChildRole   = "agent-child"
	LineRole    = "agent-line"
	MachineRole = "agent-machine"
	GuardRole   = "agent-guard"
)

// Arguments returns the program's arguments for a role and the kernel settings that the agent may change.
func Arguments(role string, sysctls knob.Permission) []string {
	if sysctls == "" {
		return []string{role}
	}
	return []string{role, string(sysctls)}
}

// Started parses arguments returned by Arguments. role is "" if args do not start with a role. Started
// rejects knob.OfGuest, because this permission is valid only for a guest's agent, which derives it from its
// role.
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

// Silence is the time without messages from the controller after which a real machine's agent undoes its
// changes and exits. It limits how long a change stays in effect after the connection is lost.
const Silence = 45 * time.Second

// unread is the time limit for a write to the controller. A write takes so long only if the controller does
// not read.
const unread = 30 * time.Second

// Main serves parts on conn until conn is closed. In ChildRole, it serves the isolated verbs itself. In other
// roles, it starts a child process for each session of an isolated verb.
//
// Main catches SIGPIPE. Otherwise, the runtime would end a program that writes to a closed standard output,
// and the handlers could not undo their changes. Main does not ignore SIGPIPE, because child programs would
// then ignore it, too.
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

// ownFolder is the name prefix of the directory that is created for an installed agent.
const ownFolder = "chokepoint-"

// removeOwnFile removes the running program's file and the directory created for it, so that nothing remains
// on the machine even if the program crashes. It does nothing if the directory was not created for the
// program.
func removeOwnFile() error {
	file, err := os.Executable()
	if err != nil || !strings.HasPrefix(filepath.Base(filepath.Dir(file)), ownFolder) {
		return err
	}
	return errors.Join(os.Remove(file), os.Remove(filepath.Dir(file)))
}

// Handlers returns the handlers of an agent in a role, by verb.
func Handlers(role string, p Parts) map[string]host.Handler { return handlers(role, p, nil) }

func handlers(role string, p Parts, guarded *guard) map[string]host.Handler {
	handlers := map[string]host.Handler{}
	none := func(context.Context) error { return nil }
	may := none
	free := none
	machine := new(alone)
	switch {
	case role == MachineRole && guarded != nil: // agents of other controllers may run on the machine
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
	return handlers
}

// after returns a handler that first calls the function may. If may returns nil, the handler then calls h.
func after(may func(context.Context) error, h host.Handler) host.Handler {
	return func(ctx context.Context, s host.Session) error {
		if err := may(ctx); err != nil {
			return err
		}
		return h(ctx, s)
	}
}

// asking returns a handler that calls f and returns its error.
func asking(f func(context.Context) error) host.Handler {
	return host.Answering(func(ctx context.Context, _ struct{}) (none struct{}, err error) {
		return none, f(ctx)
	})
}

// VerbFree returns an error if another controller has changed a setting of the machine or is about to do so.
const VerbFree = "node/free"

// inChild returns a handler that relays each session to a new child process.
func inChild(verb string) host.Handler {
	return host.Asked(func(ctx context.Context, s host.Session, first json.RawMessage) error {
		process, err := host.Spawn{Args: []string{ChildRole}}.Start()
		if err != nil {
			return fmt.Errorf("%s: %w", verb, err)
		}

		child := host.Connect(process)
		defer child.Close() // closes the child's input, so that the child undoes its changes and exits
		// Kill a child that does not exit by itself.
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
