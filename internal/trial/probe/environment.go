package probe

import (
	"context"
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// VerbEnvironment reads a node's environment.
var VerbEnvironment = host.Verb(host.FamilyProbe, "environment")

// Environment asks a node for its fingerprint: what a reader must know to compare its numbers with another
// machine's, and nothing that identifies it.
func Environment(ctx context.Context, agent host.Agent, node string) (record.Environment, error) {
	var e record.Environment
	if err := agent.Invoke(ctx, VerbEnvironment, struct{}{}, &e); err != nil {
		return record.Environment{}, fmt.Errorf("read environment of node %s: %w", node, err)
	}
	e.Node = node
	return e, nil
}

// ServeEnvironment is the node half of Environment.
func ServeEnvironment(root Root) host.Handler {
	return func(_ context.Context, s host.Session) error {
		var request struct{}
		if err := s.Recv(&request); err != nil {
			return err
		}
		return s.Send(Fingerprint(root))
	}
}

// Fingerprint reads the environment of this process' machine and namespace; Node is left empty. Facts never
// hold host names, serial numbers, boot identifiers or hardware addresses.
func Fingerprint(root Root) record.Environment {
	f := facts{root: root, known: map[string]string{}, missing: map[string]string{}}
	f.kernel()
	f.cpu()
	f.machine()
	f.settings()
	f.devices()
	return record.Environment{Facts: f.known, Missing: f.missing}
}

// facts gathers what is known and why the rest is not.
type facts struct {
	root           Root
	known, missing map[string]string
}

// set takes a fact, or notes why it is missing when it is empty.
func (f *facts) set(name, value, why string) {
	if value == "" {
		f.missing[name] = why
		return
	}
	f.known[name] = value
}

// word takes the first line of a file as a fact.
func (f *facts) word(name, path, why string) {
	f.set(name, readWord(path), fmt.Sprintf("%s cannot be read: %s", path, why))
}

// optional takes the first line of a file if there is one.
func (f *facts) optional(name, path string) {
	if v := readWord(path); v != "" {
		f.known[name] = v
	}
}
