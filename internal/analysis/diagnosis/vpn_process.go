package diagnosis

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// vpnProcess returns the rule for a tunnel whose packets pass through a process that has all the CPU time it
// can get.
func vpnProcess() Rule {
	return Rule{Class: VPNProcess, Label: "the VPN process is CPU-bound",
		Means: "the tunnel runs in userspace, its processes use at least 60 % of a core, and the busiest " +
			"core is saturated, or most lost packets are datagrams that the processes did not read in time",
		Judge: func(o *Observation) Judgement {
			if !factor.InUserspace(o.tunnel()) {
				return Judgement{Score: absent}
			}
			s, why := o.systemOf()
			if why != "" {
				return missing(why)
			}
			took, why := o.tunnelProcesses(s)
			if why != "" {
				return missing(why)
			}
			node := s.Node
			if o.Shared() {
				node = o.tunnelEnd()
			}
			full, busy := s.full(), degree(took, .3, .8)
			facts := factList{fact("tunnel_process_cores", node, "process", took,
				"the tunnel's processes used "+unit.Percent(took)+" of a core"), s.coreFact()}
			if lost, n := o.unreadDatagrams(); n > 0 {
				unread := min(degree(lost, .2, .6), degree(took, .3, .6))
				full.Met, busy = max(full.Met, unread), max(busy, unread)
				facts = append(facts, fact("UdpRcvbufErrors", node, "socket", n, fmt.Sprintf("%.0f "+
					"datagrams did not fit into a socket's receive buffer: its process read too slowly", n)))
			}
			return Judgement{Node: node, Element: "process", Facts: facts,
				Terms: []Term{requires("busy-process", busy).by(facts[0]), full},
				Text: fmt.Sprintf("the %s's VPN process (%s) is CPU-bound: it uses %s of a core", node,
					o.tunnel(), unit.Percent(took))}
		},
		Experiments: cpuDoses,
		Remedies: []Remedy{
			{Do: "use the in-kernel implementation of the tunnel", Commands: []string{"modprobe wireguard"},
				Risk: "none known; needs Linux 5.6 or a module", Factor: "tunnel",
				Level: "wireguard-kernel", Tunnel: "wireguard"},
			{System: "linux", Do: "use OpenVPN data channel offload (DCO), which runs in the kernel",
				Commands: []string{"modprobe ovpn-dco-v2"}, Risk: "AEAD ciphers and UDP only, no " +
					"compression", Tunnel: "openvpn"},
			{System: "routeros", Do: "use WireGuard or hardware-accelerated IPsec instead of OpenVPN",
				Risk: "both ends must change", Tunnel: "openvpn"},
		}}
}

// unreadDatagrams returns how many datagrams a TCP load's tunnel did not read from its sockets in time, at
// any node, per retransmitted segment, and in total.
func (o *Observation) unreadDatagrams() (share, n float64) {
	if !o.IsTCP() || !factor.InUserspace(o.tunnel()) {
		return 0, 0
	}
	for _, node := range o.nodes() {
		lost, _ := o.grew(node, "UdpRcvbufErrors")
		n += lost
	}
	_, again, _ := o.resent()
	return ratio(n, max(again, 1)), n
}

// tunnelEnd returns the node that carries the tunnel's near end, or its far end where that is a router.
func (o *Observation) tunnelEnd() string {
	t := o.Topology()
	if t == nil {
		return record.HostNode
	}
	if t.Ends(t.Tunnel[0]) && !t.Ends(t.Tunnel[1]) {
		return t.Tunnel[1]
	}
	return t.Tunnel[0]
}

// tunnelProcesses returns the time the tunnel's own processes took, in cores. On shared cores it is the time
// of the lab's processes without the load generator; otherwise that of the router's processes. A process that
// only computes is no tunnel's: a tunnel spends as long in system calls.
func (o *Observation) tunnelProcesses(s system) (float64, string) {
	if !o.Shared() {
		return min(s.User, s.Kernel) + s.Kernel, ""
	}
	lab, ok := o.cpuTime(s.Node, "lab_cpu_ns")
	if !ok {
		return 0, "the CPU time of the lab's processes was not read"
	}
	engine, ok := o.Metric("engine_cpu_s")
	if !ok {
		return 0, "the CPU time of the load generator is not known"
	}
	return max(lab-o.perSecond(engine), 0), ""
}
