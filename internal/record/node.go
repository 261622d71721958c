package record

import (
	"slices"
	"strings"
)

// HostNode stands for the machine which carries a lab.
const HostNode = "host"

// Kinds of lab, as in Run.Lab; the one with virtual routers of another architecture is "vm:ARCH". Only this
// file compares them; other code uses the facts of a node.
const (
	LabLocal = "local"
	LabVM    = "vm"
	LabPair  = "pair"
	LabSSH   = "ssh" // real machines
)

// GuestArch returns the architecture of a lab's virtual routers by its kind, "" for the machine's own; ok is
// false for a kind without guests.
func GuestArch(lab string) (arch string, ok bool) {
	kind, arch, _ := strings.Cut(lab, ":")
	return arch, kind == LabVM
}

// InNamespaces reports whether a kind of lab consists of namespaces of this machine, without guests.
func InNamespaces(lab string) bool { return lab == LabLocal }

// WithPeer reports whether a lab of this kind has a far end that a user started for one run: such a lab
// cannot be made again to resume it.
func WithPeer(lab string) bool { return lab == LabPair }

// Owners of a node's CPUs. Counts on shared CPUs do not belong to the node alone.
const (
	CPUsShared   = "shared"   // of the machine that carries the lab, with everything else on it
	CPUsVirtual  = "virtual"  // of a guest: provided by that machine's hypervisor
	CPUsEmulated = "emulated" // of a guest: emulated by that machine
	CPUsOwn      = "own"      // of a real machine
)

// How a node's CLOCK_MONOTONIC relates to the controller's.
const (
	ClockSame    = "same"
	ClockRelated = "related" // by exchanges before and after each trial
)

// DrivenByAgent is the value of NodeFacts.Driven for a node with an agent.
const DrivenByAgent = "agent"

// NodeFacts describes what a node of a run's labs is and can do, so that readers of the run need not know the
// kind of its lab.
type NodeFacts struct {
	Name string `json:"name"`
	// Driven names what configures and observes the node: DrivenByAgent, the name of a driver, or "" for
	// nothing, for the reason Unreachable.
	Driven      string `json:"driven,omitempty"`
	Unreachable string `json:"unreachable,omitempty"`
	Fixed       string `json:"fixed,omitempty"` // why no settings are changed there; "" = they are
	OwnKernel   bool   `json:"own_kernel,omitempty"`
	CPUs        string `json:"cpus,omitempty"`  // "" = unknown
	Clock       string `json:"clock,omitempty"` // "" = unreadable
	// Kernel names the first of the nodes that share this node's kernel and cores, such as containers; "" =
	// none, or unknown.
	Kernel string `json:"kernel,omitempty"`
}

// Guest reports whether the node is a virtual machine on the one that carries the lab.
func (n NodeFacts) Guest() bool { return n.CPUs == CPUsVirtual || n.CPUs == CPUsEmulated }

// OwnCPUs reports whether counts on the node's CPUs belong to the node alone.
func (n NodeFacts) OwnCPUs() bool { return n.CPUs != CPUsShared }

// OwnMachine reports whether the node is a real machine, on which other programs may run, too.
func (n NodeFacts) OwnMachine() bool { return n.CPUs == CPUsOwn }

// KernelOf returns the nodes that share a kernel, and therefore cores, with a machine, including itself; none
// if it has its own.
func (r *Run) KernelOf(node string) (sharing []string) {
	kernel := r.Node(node).Kernel
	for _, n := range r.Nodes {
		if kernel != "" && n.Kernel == kernel {
			sharing = append(sharing, n.Name)
		}
	}
	return sharing
}

// NearShares reports whether the near end shares its cores: those of the machine that carries the lab or,
// through a common kernel, those of the device under test.
func (r *Run) NearShares() bool {
	near := r.Near()
	return near.CPUs == CPUsShared || near.Kernel != "" && near.Kernel == r.Tested().Kernel
}

// Node returns the facts of a node.
func (r *Run) Node(name string) NodeFacts {
	for _, n := range r.Nodes {
		if n.Name == name {
			return n
		}
	}
	return NodeFacts{Name: name}
}

// Facts returns the facts of a node's environment, nil if it has none.
func (r *Run) Facts(node string) map[string]string {
	for _, e := range r.Environments {
		if e.Node == node {
			return e.Facts
		}
	}
	return nil
}

// Tested returns the facts of the device under test: the first router, or the near end if the run's
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

// Between reports whether the device under test is whatever lies between two machines, which nobody reaches.
func (r *Run) Between() bool { return r.Near().OwnMachine() && r.Tested().Driven == "" }

// Near returns the facts of the near end, where the controller runs.
func (r *Run) Near() NodeFacts {
	for _, t := range r.Topologies {
		return r.Node(t.Near)
	}
	return r.Node("client")
}

// virtualDrivers drive cards that a hypervisor emulates.
var virtualDrivers = [...]string{"virtio_net", "vmxnet3", "hv_netvsc", "vif", "ena", "gve"}

// VirtualDriver reports whether a network device's driver belongs to a card emulated by a hypervisor, whose
// reported speed is nominal.
func VirtualDriver(name string) bool { return slices.Contains(virtualDrivers[:], name) }
