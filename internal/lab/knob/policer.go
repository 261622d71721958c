package knob

import (
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// Policer drops incoming packets that exceed a rate such as "50M". It applies to the place's port or, if
// there is none, to the first port of the router other than its WAN port. "off" removes the policer. The
// policer is a police action of a filter that matches all packets on the ingress of the device. It queues no
// packets.
func Policer() Knob {
	k := ofPorts(ofRouter(factor.Declaration{
		Policy:  true,
		Name:    "policer",
		Unit:    "off, or bit/s",
		Rank:    17,
		Doc:     "rate above which the router drops packets from the near side",
		Without: without("off", "without policer"),
		Needs:   factor.NeedsDirection,
	}), spelling[uint64]{parse: parseLimit, spell: spellLimit}, kernel.Policer,
		func(dev string, rate uint64) error { return kernel.SetPolicer(dev, rate, burstOf(rate)) })
	k.check = k.onProbeLink
	k.always = "off"
	k.pick = insidePort
	return k
}

func insidePort(p Place) string {
	for _, port := range p.Ports {
		if port != p.WAN {
			return port
		}
	}
	return ""
}
