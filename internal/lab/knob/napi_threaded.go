package knob

import (
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// NAPIThreaded receives in kernel threads, which the scheduler can move, not in softirqs: "on" or "off".
func NAPIThreaded() Knob {
	return &perPort[State]{
		declared: declared{&factor.Declaration{Name: "napi_threaded", Unit: "on, off", Doc: "whether the " +
			"router receives in kernel threads instead of softirqs, from its ports and its tunnel",
			Without: &factor.Without{Level: "off", Words: "of the same received in softirqs"},
			Placed:  factor.Placed, Needs: factor.NeedsRouter}},
		tunnels: true, spelling: words("on", "off"),
		read: func(dev string) (State, error) {
			value, err := kernel.Attribute(dev, "threaded")
			if value == "1" {
				return "on", err
			}
			return "off", err
		},
		apply: func(dev string, s State) error {
			return kernel.SetAttribute(dev, "threaded", map[State]string{"off": "0", "on": "1"}[s])
		},
		check: func(dev string, s State) check.Answer {
			value, err := kernel.Attribute(dev, "threaded")
			if err == nil && (value == "1") != (s == "on") {
				// Writing what is there is the only question that the kernel answers: it refuses on the
				// write, not on the opening. It does so for a veth while its rx-gro is off.
				err = kernel.SetAttribute(dev, "threaded", value)
			}
			return answer(err)
		},
	}
}
