package lab

import (
	"cmp"
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

// HostNode is the name of the machine that hosts the lab.
const HostNode = record.HostNode

// Node is a machine of a lab. It describes the properties and abilities of the machine, so that callers do
// not depend on the kind of lab. A node is controlled by an agent, by a driver, or not at all.
type Node struct {
	Name  string
	Facts record.NodeFacts // incomplete; see Describe

	Agent  host.Agent    // may be nil; see HasAgent
	Driver driver.Driver // may be nil; see HasDriver
	Host   host.Host     // executes the commands of the driver
	Reader host.Host     // executes read-only commands (see Reads); if nil, Host executes them
	line   host.Agent    // connection that Host uses, closed with the node; may be nil
	// Unagented is the reason why the node is controlled by a driver although an agent was tried first.
	Unagented string
	// Rights describes the rights of the agent or driver, such as RightsOfRoot. It is "" if unknown.
	Rights string
	// Sysctls are the kernel settings that may be changed.
	Sysctls knob.Permission
	guard   guard   // guard installed by the driver
	past    []guard // guards that no longer exist but may have left files or settings behind

	boot    string           // boot ID of the kernel, if known
	Version string           // version of the agent, if it differs from ours
	Serves  string           // third-party engine that serves traffic on the node, or ""
	Trace   bool             // whether tracepoints are safe to use; set only for guests, see vm.Guest.Fragile
	Given   []record.Setting // settings that are in effect by default; Node and Port are not set
}

// guard identifies a guard that a driver has installed on the node; see driver.Guarded. The zero value means
// that there is no guard.
type guard struct {
	name string
	seq  int // number of the guard's journal entry
}

// These are the rights of an agent or driver on a node.
const (
	RightsOfRoot = "as root"
	RightsBySudo = "as root by sudo"
	NoRights     = "not as root: nothing is set there"
)

// HasAgent reports whether the node has an agent.
func (n *Node) HasAgent() bool { return n.Agent != nil }

// HasDriver reports whether the node is controlled by a driver.
func (n *Node) HasDriver() bool { return n.Driver != nil && n.Host != nil }

// Reads returns the host that executes read-only commands of the driver.
func (n *Node) Reads() host.Host { return cmp.Or(n.Reader, n.Host) }

// AgentFor returns the agent of the node. If there is none, the error says what the agent is needed for.
func (n *Node) AgentFor(purpose string) (host.Agent, error) {
	if n.Agent == nil {
		return nil, fmt.Errorf("node %s has no agent to %s", n.Name, purpose)
	}
	return n.Agent, nil
}

// Command runs a program on the node. The messages of the session are those of agent.VerbExec.
func (n *Node) Command(ctx context.Context, args ...string) (host.Session, error) {
	c := n.connection()
	if c == nil {
		return nil, fmt.Errorf("run %s: nothing of ours is on node %s", args[0], n.Name)
	}
	return c.Open(ctx, agent.VerbExec, agent.Exec{Args: args})
}

// Describe returns the facts of the node. It adds the name of the node and its agent or driver, or the reason
// why it has neither.
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

// Boot returns an identifier of the current boot of the node's kernel. It returns "" if the identifier is
// unknown.
func (n *Node) Boot(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	switch c := n.connection(); {
	case n.boot != "":
		return n.boot
	case c != nil:
		var f agent.Faced
		// Ignore errors: a peer or an agent of another version may not serve this verb.
		_ = c.Invoke(ctx, agent.VerbFacing, agent.Facing{}, &f)
		boot, _, _ := strings.Cut(f.Machine, " ")
		return boot
	case n.HasDriver() && n.Driver.Name() == driver.Linux{}.Name():
		text, _ := n.Host.ReadFile(ctx, host.BootIDFile)
		return strings.TrimSpace(string(text))
	}

	return ""
}

// given reports whether a setting is in effect on the node by default.
func (n *Node) given(s record.Setting) bool {
	return slices.Contains(n.Given, record.Setting{Knob: s.Knob, Value: s.Value})
}

// Counts reports whether the counters of the node's devices can be read.
func (n *Node) Counts() bool {
	_, ok := n.Driver.(driver.Counting)
	return n.HasAgent() || n.HasDriver() && ok
}

// Counters returns the counters of a node's ports or other devices.
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

// NamePorts replaces device names with port names in the data of a node. It also replaces them within the
// names of devices that are stacked on ports. It does nothing if devices have the names of ports.
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
				// rest must not continue the name of the device.
				rest, ok := strings.CutPrefix(name, device)
				if ok && (rest == "" || strings.ContainsRune("/@:. ", rune(rest[0]))) {
					s.Table.Names[i] = port + rest
					break
				}
			}
		}
	}
}

// connection returns the connection to the node's agent, or nil if there is none.
func (n *Node) connection() host.Agent { return cmp.Or(n.Agent, n.line) }

func (n *Node) close() {
	c := n.connection()
	if c != nil {
		c.Close()
	}
}
