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
	return atPort{&perPort{
		declared: declared{&factor.Declaration{
			Name: "policer",
			Unit: "off, or bit/s", Rank: 17,
			Doc:     "rate above which the router drops what comes from the near side; or off",
			Without: &factor.Without{Level: "off", Words: "of the same without policer"},
			Placed:  factor.Placed,
			Needs:   factor.NeedsDirection,
		}},
		parse: func(text string) (State, error) { return parseLimit("policer", text) },
		read: func(dev string) (State, error) {
			rate, err := kernel.Policer(dev)
			if err != nil || rate == 0 {
				return "off", err
			}
			return spellLimit(rate), nil
		},
		apply: func(dev string, s State) error {
			if s == "off" {
				return kernel.SetPolicer(dev, 0, 0)
			}
			rate, err := limit(s)
			if err != nil {
				return err
			}
			return kernel.SetPolicer(dev, rate, burstOf(rate))
		},
		check: func(_ string, s State) check.Answer {
			if s == "off" {
				return check.OK()
			}
			return answer(kernel.ProbePolicer())
		},
	}, insidePort}
}

func insidePort(p Place) string {
	for _, port := range p.Ports {
		if port != p.WAN {
			return port
		}
	}
	return ""
}
