package diagnosis

import (
	"cmp"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
)

// tested returns the first router or, if CPUs of routers were throttled, the router that was throttled most.
func tested(o *Observation) string {
	first := need(o.firstRouter())
	return cmp.Or(greatest(o.Routers(), func(node string) float64 {
		share, _ := o.throttled(node, 0)
		return share
	}), first)
}

// throttledFact reports the share of the window for which a quota throttled a vCPU of the node.
func throttledFact(node string, share float64) Fact {
	return fact("guest_throttled_ns", node, "vcpu", share,
		"a vCPU was kept from running for %h of the window")
}

// fell returns the decrease in the received rate from the first third of the window to the last: 0.5 = half.
func (o *Observation) fell() float64 {
	var early, late float64
	curves, _ := metrics.Received(o.Traffic)
	for _, curve := range curves {
		c := Column{curve: curve, w: o.Window}
		a, ok1 := c.GrewIn(0, .34)
		b, ok2 := c.GrewIn(.66, 1)
		if ok1 && ok2 {
			early += a
			late += b
		}
	}

	if early <= 0 {
		return 0
	}

	return 1 - late/early
}
