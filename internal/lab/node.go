package lab

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// HostNode is the node that stands for the machine which carries the lab.
const HostNode = record.HostNode

// Node is one machine of a lab, as its kind of lab supplies it: what it is and can stands here, so that
// nobody else asks what kind of lab it belongs to. It is set and watched by an agent, by a driver, or by
// nothing.
type Node struct {
	Name  string
	Facts record.NodeFacts // Describe completes them

	Agent  host.Agent    // see HasAgent
	Driver driver.Driver // see HasDriver
	Host   host.Host     // takes the driver's commands
	Reader host.Host     // takes those of them that only read, see Reads; nil: Host does
	line   host.Agent    // what Host's commands go through and Close ends, nil if nothing
	// Unagented explains why a driver drives it, where an agent was tried first.
	Unagented string
	// Rights describes the rights of what sets it: RightsOfRoot, or others; "" = not known.
	Rights string
	// Sysctls permits kernel settings there.
	Sysctls knob.Permission
	guard   guard   // the one that its driver has left there
	past    []guard // those that were found gone

	boot    string           // of its kernel, where it has told that
	Version string           // of the chokepoint whose agent it is, where that is not ours
	Serves  string           // the engine whose traffic a third party's program ends there, "" if none does
	Trace   bool             // tracepoints of its kernel may be switched: it is the lab's alone, and bears it
	Given   []record.Setting // settings that hold as it is, without node and port
}

// guard describes one that a driver has left on a node; without a name there is none.
type guard struct {
	name string
	seq  int // in the journal
}

// Rights of a node.
const (
	RightsOfRoot = "as root"
	RightsBySudo = "as root by sudo"
	NoRights     = "not as root: nothing is set there"
)

// HasAgent reports whether the node is set and watched by an agent.
func (n *Node) HasAgent() bool { return n.Agent != nil }

// HasDriver reports whether the node is set and watched by a driver.
func (n *Node) HasDriver() bool { return n.Driver != nil && n.Host != nil }

// Reads is the host that takes the driver's commands which change nothing.
func (n *Node) Reads() host.Host {
	if n.Reader != nil {
		return n.Reader
	}
	return n.Host
}

// AgentFor returns the node's agent, or an error that says what it would be needed for.
func (n *Node) AgentFor(purpose string) (host.Agent, error) {
	if n.Agent == nil {
		return nil, fmt.Errorf("node %s has no agent to %s", n.Name, purpose)
	}
	return n.Agent, nil
}

// Command runs a program on the node, by agent.VerbExec: the session's messages are agent.ExecOutput.
func (n *Node) Command(ctx context.Context, args ...string) (host.Session, error) {
	c := n.connection()
	if c == nil {
		return nil, fmt.Errorf("run %s: nothing of ours is on node %s", args[0], n.Name)
	}
	return c.Open(ctx, agent.VerbExec, agent.Exec{Args: args})
}

// Describe returns the node's facts, with its name, and by what it is set and watched, or why by nothing.
func (n *Node) Describe() record.NodeFacts {
	f := n.Facts
	f.Name = n.Name
	switch {
	case n.HasAgent():
		f.Driven = record.DrivenByAgent
	case n.HasDriver():
		f.Driven = n.Driver.Name()
	case f.Unreachable == "":
		f.Unreachable = "it has neither an agent nor a driver"
	}

	return f
}

// Boot names the boot of the node's kernel, which no other kernel and no later boot has; "" where it is not
// known.
func (n *Node) Boot(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	switch c := n.connection(); {
	case n.boot != "":
		return n.boot
	case c != nil:
		var f agent.Faced
		_ = c.Invoke(ctx, agent.VerbFacing, agent.Facing{}, &f) // of a peer, or of another version: not known
		boot, _, _ := strings.Cut(f.Machine, " ")
		return boot
	case n.HasDriver() && n.Driver.Name() == driver.Linux{}.Name():
		text, _ := n.Host.ReadFile(ctx, host.BootIDFile)
		return strings.TrimSpace(string(text))
	}

	return ""
}

// given reports whether a setting holds there as it is.
func (n *Node) given(s record.Setting) bool {
	return slices.Contains(n.Given, record.Setting{Knob: s.Knob, Value: s.Value})
}

// Counts reports whether the counters of the node's devices can be read.
func (n *Node) Counts() bool {
	_, ok := n.Driver.(driver.Counting)
	return n.HasAgent() || n.HasDriver() && ok
}

// Counters reads the counters of a node's ports, and of other devices.
func (l *Lab) Counters(ctx context.Context, node string, ports ...string) (
	out map[string]kernel.LinkCounters, err error) {
	n, err := l.Node(ctx, node)
	if err != nil {
		return nil, err
	}

	var devices []string
	for _, port := range ports {
		devices = append(devices, l.Device(node, port))
	}

	var all map[string]kernel.LinkCounters
	if d, ok := n.Driver.(driver.Counting); ok && n.HasDriver() {
		all, err = d.Counters(ctx, n.Reads(), devices)
	} else {
		var a host.Agent
		if a, err = n.AgentFor("read counters"); err == nil {
			err = a.Invoke(ctx, agent.VerbCounters, devices, &all)
		}
	}

	if err != nil {
		return nil, err
	}

	out = map[string]kernel.LinkCounters{}
	for i, port := range ports {
		if c, ok := all[devices[i]]; ok {
			out[port] = c
		}
	}

	return out, nil
}

// NamePorts has what a node saw speak of its ports, and of what is below them, by their own names, as
// everywhere else, where its devices have others.
func (l *Lab) NamePorts(node string, data record.NodeData) {
	if len(l.devices[node]) == 0 {
		return
	}

	for _, s := range data.Samples {
		if s.Table == nil {
			continue
		}

		for i, name := range s.Table.Names {
			for port, device := range l.devices[node] {
				if rest, ok := strings.CutPrefix(name, device); ok && belongs(rest) {
					s.Table.Names[i] = port + rest
					break
				}
			}
		}
	}
}

// belongs reports whether a text follows the name of a device, and is not the rest of another one's.
func belongs(rest string) bool { return rest == "" || strings.ContainsRune("/@:. ", rune(rest[0])) }

// connection returns the agent that the node is reached by, nil if by nothing that can be lost.
func (n *Node) connection() host.Agent {
	if n.Agent != nil {
		return n.Agent
	}
	return n.line
}

func (n *Node) close() {
	c := n.connection()
	if c != nil {
		c.Close()
	}
}
