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
	}), onOff(), func(dev string) (bool, error) {
		value, err := kernel.Attribute(dev, "threaded")
		return value == "1", err
	}, func(dev string, on bool) error {
		return kernel.SetAttribute(dev, "threaded", map[bool]string{false: "0", true: "1"}[on])
	})
	k.check = func(p Place, on bool) error {
		value, err := kernel.Attribute(p.Port, "threaded")
		if err == nil && (value == "1") != on {
			// The kernel rejects the value only on write, for example for a veth whose rx-gro is off. Writing
			// the current value tests this without changing anything.
			err = kernel.SetAttribute(p.Port, "threaded", value)
		}
		return err
	}
	k.tunnels = true
	return k
}
