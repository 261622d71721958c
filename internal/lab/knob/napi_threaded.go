package knob

import (
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// NAPIThreaded selects kernel threads, which the scheduler can migrate, instead of softirqs for receiving
// packets: "on" or "off".
func NAPIThreaded() Knob {
	k := ofPorts(ofRouter(factor.Declaration{
		Name: "napi_threaded",
		Unit: "on, off",
		Doc: "threaded NAPI: whether the router's ports and tunnel receive in kernel threads instead of " +
			"softirqs",
		Without: without("off", "received in softirqs"),
	}), words("on", "off"), func(dev string) (State, error) {
		value, err := kernel.Attribute(dev, "threaded")
		if value == "1" {
			return "on", err
		}
		return "off", err
	}, func(dev string, s State) error {
		return kernel.SetAttribute(dev, "threaded", map[State]string{"off": "0", "on": "1"}[s])
	})
	k.check = func(p Place, s State) check.Answer {
		value, err := kernel.Attribute(p.Port, "threaded")
		if err == nil && (value == "1") != (s == "on") {
			// The kernel refuses the value only on write, for example for a veth while its rx-gro is off.
			// Writing the present value tests this without a change.
			err = kernel.SetAttribute(p.Port, "threaded", value)
		}
		return answer(err)
	}
	k.tunnels = true
	return k
}
