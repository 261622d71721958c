package knob

import (
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// NAPIThreaded has a device's packets received by kernel threads, which the scheduler can move, instead of
// in softirqs: "on" or "off".
func NAPIThreaded() Knob {
	return &perPort{
		declared: declared{&factor.Declaration{
			Name: "napi_threaded",
			Unit: "on, off",
			Doc: "whether the router receives in kernel threads instead of softirqs, from its ports and " +
				"its tunnel",
			Without: &factor.Without{Level: "off", Words: "of the same received in softirqs"},
			Placed:  factor.Placed,
			Needs:   factor.NeedsRouter,
		}},
		tunnels: true,
		parse:   func(text string) (State, error) { return parseSwitch("napi_threaded", text) },
		read: func(dev string) (State, error) {
			on, err := kernel.NAPIThreaded(dev)
			if on {
				return "on", err
			}
			return "off", err
		},
		apply: func(dev string, s State) error { return kernel.SetNAPIThreaded(dev, s == "on") },
		check: func(dev string, s State) check.Answer {
			on, err := kernel.NAPIThreaded(dev)
			if err == nil && on != (s == "on") {
				// Writing what is there is the only question that the kernel answers: it refuses on the
				// write, not on the opening.
				err = kernel.SetNAPIThreaded(dev, on)
			}
			return answer(err)
		},
	}
}
