package knob

import (
	"errors"
	"fmt"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// Flowtable lets the connections that a router forwards skip its forwarding path, and with it the packet
// filter, once they are known: "on" or "off". It is nftables' flow table in software, between the node's
// ports, with one rule that adds every TCP and UDP connection to it.
func Flowtable() Knob {
	return &ofNode[State]{declared: declared{&factor.Declaration{
		Name: "flowtable", Unit: "on, off", Rank: 19, Doc: "whether known connections skip the router's " +
			"forwarding path (nftables' flow table, in software)", Without: &factor.Without{Level: "off",
			Words: "of the same without flow table"}, Placed: factor.Placed, Needs: factor.NeedsForwarding,
	}},
		spelling: words("on", "off"),
		read: func(p Place) (State, error) {
			devs, err := kernel.ReadFlowtable()
			if err != nil || len(devs) == 0 {
				return "off", err
			}
			if want := slices.Sorted(slices.Values(p.Ports)); !slices.Equal(devs, want) {
				return "", fmt.Errorf("read flowtable at %s: it is of %v, want %v", p.Node, devs, want)
			}
			return "on", nil
		},
		apply: func(p Place, s State) error {
			if s != "on" {
				return kernel.SetFlowtable(nil)
			}
			if len(p.Ports) == 0 {
				return errors.New("set flowtable: no port named at " + p.Node)
			}
			return kernel.SetFlowtable(p.Ports)
		},
		check:  func(Place, State) check.Answer { return answer(kernel.ProbeFlowtable()) },
		always: "off",
	}
}
