package knob

import (
	"context"
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
	return flowtable{declared{&factor.Declaration{
		Name: "flowtable",
		Unit: "on, off", Rank: 19,
		Doc: "whether known connections skip the router's forwarding path (nftables' flow table, in " +
			"software)",
		Without: &factor.Without{Level: "off", Words: "of the same without flow table"},
		Placed:  factor.Placed,
		Needs:   factor.NeedsForwarding,
	}}}
}

type flowtable struct{ declared }

func (flowtable) Parse(text string) (State, error) { return parseSwitch("flowtable", text) }

func (flowtable) Read(_ context.Context, p Place) (State, error) {
	devs, err := kernel.ReadFlowtable()
	if err != nil || len(devs) == 0 {
		return "off", conclude(err)
	}
	if want := slices.Sorted(slices.Values(p.Ports)); !slices.Equal(devs, want) {
		return "", fmt.Errorf("read flowtable at %s: it is of %v, want %v", p.Node, devs, want)
	}
	return "on", nil
}

func (flowtable) Apply(_ context.Context, p Place, s State) error {
	if s != "on" {
		return conclude(kernel.SetFlowtable(nil))
	}
	if len(p.Ports) == 0 {
		return errors.New("set flowtable: no port named at " + p.Node)
	}
	return conclude(kernel.SetFlowtable(p.Ports))
}

func (flowtable) Check(_ context.Context, _ Place, s State) check.Answer {
	if s != "on" {
		return check.OK()
	}
	return answer(kernel.ProbeFlowtable())
}

// parseSwitch reads "on" or "off".
func parseSwitch(name, text string) (State, error) {
	if text != "on" && text != "off" {
		return "", refuse(name, text, "on or off")
	}
	return State(text), nil
}
