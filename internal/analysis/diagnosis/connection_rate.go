package diagnosis

import (
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// connectionRate describes a router whose CPU is saturated by setting up connections.
var connectionRate = rule(ConnectionRate, `
	label: the rate of new connections saturates the CPU
	means: the load opens short connections, goodput is low, and the CPU is saturated
	traits: in-router
	explains: busy-cores
	kind: packet
	linux: do not track connections that need no state
		$ nft add rule inet raw prerouting udp dport 53 notrack
		risk: no NAT and no stateful rules for them
	linux: enlarge the conntrack hash table
		$ echo 65536 > /sys/module/nf_conntrack/parameters/hashsize
		risk: more memory
	freebsd: enlarge pf's state hash table
		$ echo net.pf.states_hashsize=1048576 >> /boot/loader.conf
		risk: more memory; gained 15 % at 100,000 states (netbenches)
`, func(o *Observation) Candidate {
	flows := o.Traffic.ShortFlows
	if flows == nil || flows.Kept {
		return excluded()
	}

	s := need(systemOf(o))
	rate, ok := o.Metric(metrics.FlowRate)
	needs(ok, "no connection completed")
	node := s.Node
	routers := o.Routers()
	if node == record.HostNode && len(routers) > 0 {
		node = routers[0]
	}

	perFlow := ratio(o.goodput()/8, rate)
	return place{node, "cpu"}.candidate(requires("small-flows", perFlow, 200e3, 20e3).by(
		fact(metrics.FlowRate, node, "", rate, "%g connections per second of %g bytes each", rate,
			perFlow)),
		s.full()).
		text("the CPU is saturated at %g new connections per second", rate)
})
