package record

import (
	"slices"
	"strings"
)

// HostNode is the node name of the machine that runs a lab.
const HostNode = "host"

// Kinds of labs, for Run.Lab. If the virtual routers of a lab have a different architecture from the machine,
// the kind is "vm:ARCH". Only this file compares kinds; other code uses NodeFacts.
const (
	LabLocal = "local"
	LabVM    = "vm"
	LabPair  = "pair"
	LabSSH   = "ssh" // real machines
)

// GuestArch returns the architecture of the virtual routers in a kind of lab, or "" if they have the
// architecture of the machine. ok is false if the lab has no virtual routers.
func GuestArch(lab string) (arch string, ok bool) {
	kind, arch, _ := strings.Cut(lab, ":")
	return arch, kind == LabVM
}

// InNamespaces reports whether a kind of lab consists only of network namespaces on this machine.
func InNamespaces(lab string) bool { return lab == LabLocal }

// WithPeer reports whether a kind of lab needs a peer that the user starts for each run. Such a run cannot
// be resumed.
func WithPeer(lab string) bool { return lab == LabPair }

// Kinds of CPUs that a node has.
const (
	CPUsShared   = "shared"   // CPUs of the machine that runs the lab, shared with everything on the machine
	CPUsVirtual  = "virtual"  // CPUs of a guest, provided by the hypervisor of the machine that runs the lab
	CPUsEmulated = "emulated" // CPUs of a guest, emulated by the machine that runs the lab
	CPUsOwn      = "own"      // CPUs of a real machine
)

// These values describe how a node's CLOCK_MONOTONIC relates to the controller's.
const (
	ClockSame    = "same"
	ClockRelated = "related" // measured before and after each trial
)

// DrivenByAgent is the value of NodeFacts.Driven for nodes with an agent.
const DrivenByAgent = "agent"

// NodeFacts describes the properties of a node in the labs of a run. With it, code that reads runs does not
// depend on the kind of lab.
type NodeFacts struct {
	Name string `json:"name"`
	// Driven is DrivenByAgent, or the name of the driver that configures and observes the node. If neither an
	// agent nor a driver does so, it is "" and Unreachable is the reason.
	Driven      string `json:"driven,omitempty"`
	Unreachable string `json:"unreachable,omitempty"`
	Fixed       string `json:"fixed,omitempty"` // reason if settings on the node cannot be changed
	OwnKernel   bool   `json:"own_kernel,omitempty"`
	CPUs        string `json:"cpus,omitempty"`  // "" means unknown
	Clock       string `json:"clock,omitempty"` // "" means unreadable
	// Kernel is the name of the first of several nodes, such as containers, that share a kernel and its
	// cores. It is "" if the node has its own kernel or if this is unknown.
	Kernel string `json:"kernel,omitempty"`
}

// Guest reports whether the node is a virtual machine on the machine that runs the lab.
func (n NodeFacts) Guest() bool { return n.CPUs == CPUsVirtual || n.CPUs == CPUsEmulated }

// OwnCPUs reports whether counters of the node's CPUs cover only the node.
func (n NodeFacts) OwnCPUs() bool { return n.CPUs != CPUsShared }

// OwnMachine reports whether the node is a real machine. Other programs may run on it.
func (n NodeFacts) OwnMachine() bool { return n.CPUs == CPUsOwn }

// KernelOf returns the nodes that share a kernel, and therefore cores, with a node. The result includes the
// node itself. It is nil if the node has its own kernel.
func (r *Run) KernelOf(node string) (sharing []string) {
	kernel := r.Node(node).Kernel
	for _, n := range r.Nodes {
		if kernel != "" && n.Kernel == kernel {
			sharing = append(sharing, n.Name)
		}
	}
	return sharing
}

// NearShares reports whether the near endpoint shares its cores: either with everything on the machine
// that runs the lab, or with the device under test through a common kernel.
func (r *Run) NearShares() bool {
	near := r.Near()
	return near.CPUs == CPUsShared || near.Kernel != "" && near.Kernel == r.Tested().Kernel
}

// Node returns the facts of the node with the given name.
func (r *Run) Node(name string) NodeFacts {
	for _, n := range r.Nodes {
		if n.Name == name {
			return n
		}
	}
	return NodeFacts{Name: name}
}

// Facts returns the facts in a node's environment, or nil if it has none.
func (r *Run) Facts(node string) map[string]string {
	for _, e := range r.Environments {
		if e.Node == node {
			return e.Facts
		}
	}
	return nil
}

// Tested returns the facts of the device under test: the first router, or the near endpoint if the
// topologies have no router.
func (r *Run) Tested() NodeFacts {
	for _, t := range r.Topologies {
		if len(t.Routers) > 0 {
			return r.Node(t.Routers[0])
		}
	}

	if len(r.Topologies) > 0 {
		return r.Near()
	}
	return r.Node("router")
}

// Between reports whether the run tests an inaccessible path between two machines: the near endpoint is a
// real machine, and neither an agent nor a driver observes the device under test.
func (r *Run) Between() bool { return r.Near().OwnMachine() && r.Tested().Driven == "" }

// Near returns the facts of the near endpoint, where the controller runs.
func (r *Run) Near() NodeFacts {
	for _, t := range r.Topologies {
		return r.Node(t.Near)
	}
	return r.Node("client")
}

// virtualDrivers lists the drivers for network cards that a hypervisor emulates.
var virtualDrivers = [...]string{"virtio_net", "vmxnet3", "hv_netvsc", "vif", "ena", "gve"}

// VirtualDriver reports whether a driver is for a network card that a hypervisor emulates. The speed of
// such a card is nominal.
func VirtualDriver(name string) bool { return slices.Contains(virtualDrivers[:], name) }
