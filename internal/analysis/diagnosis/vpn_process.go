package diagnosis

import (
	"cmp"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
)

// vpnProcess describes a tunnel in user space whose process is CPU-bound.
var vpnProcess = rule(VPNProcess, `
	label: the VPN process is CPU-bound
	means: the tunnel runs in userspace, its processes use at least 60 % of a core, and the \
		busiest core is saturated
	traits: at-capacity in-router in-guest
	explains: random-loss reordering wireguard-queue
	kind: packet
	planted: cpu_quota
	any: use the kernel's implementation of the tunnel
		$ modprobe wireguard
		risk: none known; needs Linux 5.6 or a module
		plan: tunnel=wireguard-kernel
		tunnel: wireguard
	linux: use OpenVPN data channel offload (DCO), which runs in the kernel
		$ modprobe ovpn-dco-v2
		risk: AEAD ciphers and UDP only, no compression
		tunnel: openvpn
	routeros: use WireGuard or hardware-accelerated IPsec instead of OpenVPN
		risk: both ends must change
		tunnel: openvpn
`, func(o *Observation) Candidate {
	if !factor.InUserspace(o.tunnel()) {
		return excluded()
	}

	s := need(systemOf(o))
	took := need(o.tunnelProcesses(s))
	at := place{s.Node, "process"}
	if t := o.Topology(); o.Shared() {
		at.Node = t.Tunnel[0]
		if t.Ends(t.Tunnel[0]) && !t.Ends(t.Tunnel[1]) {
			at.Node = t.Tunnel[1] // only the far end is a router
		}
	}

	return at.candidate(requires("busy-process", took, .3, .8).by(
		at.fact("tunnel_process_cores", took, "the tunnel's processes used %h of a core")),
		s.full()).
		text("the %s's VPN process (%s) is CPU-bound: it uses %h of a core", at.Node, o.tunnel(), took)
})

// tunnelProcesses returns the CPU time of the tunnel's processes, in cores. On shared cores, this is the time
// of the lab's processes without the load generator. Otherwise, it is the time of the router's processes. A
// tunnel's process spends as much time in system calls as in user space, so user time beyond that belongs to
// other processes.
func (o *Observation) tunnelProcesses(s system) (float64, string) {
	if !o.Shared() {
		return min(s.User, s.Kernel) + s.Kernel, ""
	}

	lab, why := o.cpuTime(s.Node, "lab_cpu_ns")
	engine, ok := o.Metric("engine_cpu_s")
	if !ok {
		why = cmp.Or(why, "the CPU time of the load generator is not known")
	}

	return max(lab-o.perSecond(engine), 0), why
}
