package knob

import (
	"errors"
	"fmt"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// Flowtable makes packets of established connections bypass the forwarding path of a router, including the
// packet filter. The states are "on" (in software), "hardware" (in the devices) and "off". The knob uses an
// nftables flow table between the ports of the node, and one rule that adds all TCP and UDP connections.
func Flowtable() Knob {
	return &kernelKnob[State]{
		declared: ofRouter(factor.Declaration{
			Name: "flowtable",
			Unit: "on, hardware, off",
			Rank: 19,
			Doc: "whether established connections bypass the router's forwarding path through an " +
				"nftables flow table: in software (on), in the devices' hardware, or not at all",
			Without: without("off", "without flow table"),
			Needs:   factor.NeedsForwarding,
		}),
		spelling: words("on", "hardware", "off"),
		read: func(p Place) (State, error) {
			t, err := kernel.Flowtables.Read()
			if err != nil || len(t.Devices) == 0 {
				return "off", err
			}

			if want := flowtableOf(p, "on").Devices; !slices.Equal(t.Devices, want) {
				return "", fmt.Errorf("read flowtable at %s: it is of %v, want %v", p.Node, t.Devices, want)
			}

			if t.Hardware {
				return "hardware", nil
			}

			return "on", nil
		},
		apply: func(p Place, s State) error {
			t := flowtableOf(p, s)
			if s != "off" && len(t.Devices) == 0 {
				return errors.New("set flowtable: no port named at " + p.Node)
			}
			return kernel.Flowtables.Set(t)
		},
		check:  func(p Place, s State) error { return kernel.Flowtables.Probe(flowtableOf(p, s)) },
		always: "off",
	}
}

func flowtableOf(p Place, s State) kernel.Flowtable {
	if s == "off" {
		return kernel.Flowtable{}
	}
	return kernel.Flowtable{Devices: slices.Sorted(slices.Values(p.Ports)), Hardware: s == "hardware"}
}
