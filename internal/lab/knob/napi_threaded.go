package knob

import (
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// NAPIThreaded selects whether packets are received in kernel threads, which the scheduler can migrate,
// instead of in softirqs. The states are "on" and "off".
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
	k.check = func(p Place, s State) error {
		value, err := kernel.Attribute(p.Port, "threaded")
		if err == nil && (value == "1") != (s == "on") {
			// The kernel rejects the value only on write, for example for a veth whose rx-gro is off. Writing
			// the current value tests this without changing anything.
			err = kernel.SetAttribute(p.Port, "threaded", value)
		}
		return err
	}
	k.tunnels = true
	return k
}
