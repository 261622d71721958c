package knob

import (
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// Policer drops what arrives at the place's port, or else at the router's first port that is not its WAN,
// above a rate such as "50M"; "off" is without. It is the action police behind a filter that takes
// everything, on the ingress of the device: nothing is queued.
func Policer() Knob {
	return &perPort[uint64]{
		declared: declared{&factor.Declaration{Policy: true,
			Name: "policer", Unit: "off, or bit/s", Rank: 17,
			Doc:     "rate above which the router drops what comes from the near side; or off",
			Without: &factor.Without{Level: "off", Words: "of the same without policer"},
			Placed:  factor.Placed, Needs: factor.NeedsDirection}},
		spelling: spelling[uint64]{parse: parseLimit, spell: spellLimit},
		read:     kernel.Policer,
		apply:    func(dev string, rate uint64) error { return kernel.SetPolicer(dev, rate, burstOf(rate)) },
		check: func(_ string, rate uint64) check.Answer {
			return answer(kernel.OnProbeLink(func(dev string) error {
				return kernel.SetPolicer(dev, rate, burstOf(rate))
			}))
		},
		always: "off", pick: insidePort,
	}
}

func insidePort(p Place) string {
	for _, port := range p.Ports {
		if port != p.WAN {
			return port
		}
	}
	return ""
}
