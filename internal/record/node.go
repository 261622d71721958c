package record

import (
	"slices"
	"strings"
)

// HostNode is the name of the machine that runs a lab.
const HostNode = "host"

// Kinds of labs, for Run.Lab. The kind of a lab whose virtual routers have another architecture is
// "vm:ARCH". Only this file compares kinds; other code uses NodeFacts.
const (
	LabLocal = "local"
	LabVM    = "vm"
	LabPair  = "pair"
	LabSSH   = "ssh" // real machines
)

// GuestArch returns the architecture of the virtual routers in a kind of lab, or "" for the machine's own.
// ok is false if the lab has no virtual routers.
func GuestArch(lab string) (arch string, ok bool) {
	kind, arch, _ := strings.Cut(lab, ":")
	return arch, kind == LabVM
}

// InNamespaces reports whether a kind of lab consists only of network namespaces on this machine.
func InNamespaces(lab string) bool { return lab == LabLocal }

// WithPeer reports whether a kind of lab needs a peer that the user starts for each run. Such a run cannot
// be resumed.
func WithPeer(lab string) bool { return lab == LabPair }

// Owners of a node's CPUs. Counters of shared CPUs include other nodes and programs.
const (
	CPUsShared   = "shared"   // CPUs of the machine that runs the lab, shared with everything on it
	CPUsVirtual  = "virtual"  // a guest's, provided by the hypervisor of that machine
	CPUsEmulated = "emulated" // a guest's, emulated by that machine
	CPUsOwn      = "own"      // a real machine's
)

// Relation of a node's CLOCK_MONOTONIC to the controller's.
const (
	ClockSame    = "same"
	ClockRelated = "related" // measured before and after each trial
)

// DrivenByAgent is the value of NodeFacts.Driven for nodes with an agent.
const DrivenByAgent = "agent"

// NodeFacts describes the properties of a node in the run's labs, so that code that reads runs does not
// depend on the kind of lab.
type NodeFacts struct {
	Name string `json:"name"`
	// Driven is DrivenByAgent or the name of the driver that configures and observes the node. It is "" if
	// nothing does; then Unreachable is the reason.
	Driven      string `json:"driven,omitempty"`
	Unreachable string `json:"unreachable,omitempty"`
	Fixed       string `json:"fixed,omitempty"` // reason if settings cannot be changed there
	OwnKernel   bool   `json:"own_kernel,omitempty"`
	CPUs        string `json:"cpus,omitempty"`  // "" means unknown
	Clock       string `json:"clock,omitempty"` // "" means unreadable
	// Kernel is the first of several nodes that share a kernel and its cores, such as containers; "" means
	// that the node has its own, or that this is unknown.
	Kernel string `json:"kernel,omitempty"`
}

// Guest reports whether the node is a virtual machine on the machine that runs the lab.
func (n NodeFacts) Guest() bool { return n.CPUs == CPUsVirtual || n.CPUs == CPUsEmulated }

// OwnCPUs reports whether counters of the node's CPUs cover that node only.
func (n NodeFacts) OwnCPUs() bool { return n.CPUs != CPUsShared }

// OwnMachine reports whether the node is a real machine. Other programs may run on it.
func (n NodeFacts) OwnMachine() bool { return n.CPUs == CPUsOwn }

// KernelOf returns the nodes that share a kernel, and therefore cores, with a node, including the node
// itself. It returns nil if the node has its own kernel.
func (r *Run) KernelOf(node string) (sharing []string) {
	kernel := r.Node(node).Kernel
	for _, n := range r.Nodes {
		if kernel != "" && n.Kernel == kernel {
			sharing = append(sharing, n.Name)
		}
	}
	return sharing
}

// NearShares reports whether the near endpoint shares its cores: with everything on the machine that runs
// the lab or, through a common kernel, with the device under test.
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

// Between reports whether the device under test is whatever lies between two machines and is not
// accessible.
func (r *Run) Between() bool { return r.Near().OwnMachine() && r.Tested().Driven == "" }

// Near returns the facts of the near endpoint, where the controller runs.
func (r *Run) Near() NodeFacts {
	for _, t := range r.Topologies {
		return r.Node(t.Near)
	}
	return r.Node("client")
}

// virtualDrivers lists the drivers of network cards that a hypervisor emulates.
var virtualDrivers = [...]string{"virtio_net", "vmxnet3", "hv_netvsc", "vif", "ena", "gve"}

// VirtualDriver reports whether a driver is for a network card emulated by a hypervisor. The speed of such
// a card is nominal.
func VirtualDriver(name string) bool { return slices.Contains(virtualDrivers[:], name) }
