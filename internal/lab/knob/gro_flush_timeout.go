package knob

import (
	"strconv"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/qdisc"
)

var errGROFlush = want("off, or a time up to 1s, such as 20us")

// GROFlushTimeout sets how long a device holds received packets in order to merge them with later packets of
// the same flow (generic receive offload). The state is a time such as "20us", or "off" if packets are held
// only until the end of each poll. The setting has no effect if GRO is off
// (Documentation/networking/napi.rst).
func GROFlushTimeout() Knob {
	const name = "gro_flush_timeout"
	k := ofPorts(ofRouter(factor.Declaration{
		Name: name,
		Unit: "off, or a time such as 20us, up to 1s",
		Doc: "time for which the router holds received packets so that GRO can merge more of them; " +
			"without effect if GRO is off",
		Without: without("off", "without waiting for GRO"),
	}), spelling[time.Duration]{
		parse: func(text string) (time.Duration, error) {
			d, err := time.ParseDuration(text)
			if text != "off" && (err != nil || d <= 0) {
				return 0, errGROFlush
			}
			return d, nil
		},
		spell: spellGROFlush,
		bound: func(d time.Duration) error {
			if d > time.Second {
				return errGROFlush
			}
			return nil
		},
	}, func(dev string) (time.Duration, error) {
		text, err := kernel.Attribute(dev, name)
		if err != nil {
			return 0, err
		}

		ns, err := strconv.ParseInt(text, 10, 64)
		return time.Duration(ns), err
	}, func(dev string, d time.Duration) error {
		return kernel.SetAttribute(dev, name, strconv.FormatInt(d.Nanoseconds(), 10))
	})
	// Even in a network namespace, the kernel requires privileges on the machine, and it checks them only on
	// write.
	k.trying = true
	return k
}

func spellGROFlush(d time.Duration) State {
	if d <= 0 {
		return "off"
	}
	return qdisc.SpellScaled(uint64(d), []qdisc.Scale{{Suffix: "ms", Factor: 1e6},
		{Suffix: "us", Factor: 1e3}}, "ns")
}
