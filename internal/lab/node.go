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

// HostNode stands for the machine which carries the lab.
const HostNode = record.HostNode

// Node is one machine of a lab, as its kind of lab provides it. It describes what the machine is and can do,
// so that the kind of lab need not be known. It is set and watched by an agent, by a driver, or by nothing.
type Node struct {
	Name  string
	Facts record.NodeFacts // Describe completes it

	Agent  host.Agent    // see HasAgent
	Driver driver.Driver // see HasDriver
	Host   host.Host     // executes the driver's commands
	Reader host.Host     // executes read-only commands, see Reads; nil: Host does
	line   host.Agent    // connection behind Host, which Close ends; nil if none
	// Unagented explains why a driver is used, where an agent was tried first.
	Unagented string
	// Rights describes the rights of the agent or driver: RightsOfRoot, or others; "" = unknown.
	Rights string
	// Sysctls permits kernel settings there.
	Sysctls knob.Permission
	guard   guard   // left there by its driver
	past    []guard // guards found missing

	boot    string           // of its kernel, where known
	Version string           // version of the agent's chokepoint, if it differs from ours
	Serves  string           // third-party engine that terminates traffic there, "" if none
	Trace   bool             // tracepoints may be switched: only the lab uses its kernel, which supports it
	Given   []record.Setting // settings that hold by default, without node and port
}

// guard describes a guard that a driver left on a node; without a name there is none.
type guard struct {
	name string
	seq  int // journal entry
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

// Reads returns the host for those commands of the driver that change nothing.
func (n *Node) Reads() host.Host {
	if n.Reader != nil {
		return n.Reader
	}
	return n.Host
}

// AgentFor returns the node's agent, or an error that names the purpose for which one is needed.
func (n *Node) AgentFor(purpose string) (host.Agent, error) {
	if n.Agent == nil {
		return nil, fmt.Errorf("node %s has no agent to %s", n.Name, purpose)
	}
	return n.Agent, nil
}

// Command runs a program on the node by agent.VerbExec: the session's messages are agent.ExecOutput.
func (n *Node) Command(ctx context.Context, args ...string) (host.Session, error) {
	c := n.connection()
	if c == nil {
		return nil, fmt.Errorf("run %s: nothing of ours is on node %s", args[0], n.Name)
	}
	return c.Open(ctx, agent.VerbExec, agent.Exec{Args: args})
}

// Describe returns the node's facts, with its name and what sets and watches it, or the reason why nothing
// does.
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

// Boot identifies the current boot of the node's kernel, unlike any other kernel or later boot; "" if
// unknown.
func (n *Node) Boot(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	switch c := n.connection(); {
	case n.boot != "":
		return n.boot
	case c != nil:
		var f agent.Faced
		_ = c.Invoke(ctx, agent.VerbFacing, agent.Facing{}, &f) // a peer, or another version: unknown
		boot, _, _ := strings.Cut(f.Machine, " ")
		return boot
	case n.HasDriver() && n.Driver.Name() == driver.Linux{}.Name():
		text, _ := n.Host.ReadFile(ctx, host.BootIDFile)
		return strings.TrimSpace(string(text))
	}

	return ""
}

// given reports whether a setting holds there by default.
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

// NamePorts renames devices in a node's data to the names of the ports, also devices below them, if the
// node's devices have names of their own.
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

// belongs reports whether rest, the text after a device's name, ends that name instead of continuing another
// device's.
func belongs(rest string) bool { return rest == "" || strings.ContainsRune("/@:. ", rune(rest[0])) }

// connection returns the agent through which the node is reached; nil if no connection can be lost.
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
