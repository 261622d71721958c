package knob

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// NAT is a router's address translation at its WAN port: "off"; "masquerade", for connections from inside;
// "forward", for connections from outside to the router's WAN address, ports 20000 to 20999. It is of IPv4:
// IPv6 passes as it is (NAT66 is off). Where the WAN port has a tag, the place's Port must name the device
// with the tag (VLANDevice): rules go by it.
func NAT() Knob {
	return nat{declared{&factor.Declaration{
		Name: "nat",
		Doc:  "address translation on the router",
	}}}
}

type nat struct{ declared }

func (nat) Parse(text string) (State, error) {
	switch s := strings.TrimSpace(text); kernel.NATMode(s) {
	case kernel.NATOff, kernel.NATMasquerade, kernel.NATForward:
		return State(s), nil
	}
	return "", refuse("nat", text, "off, masquerade or forward")
}

func (nat) Read(context.Context, Place) (State, error) {
	mode, err := kernel.ReadNAT()
	return State(mode), conclude(err)
}

func (nat) Apply(_ context.Context, p Place, s State) error {
	inside, err := addresses(p.Inside)
	if err != nil {
		return fmt.Errorf("set nat %s at %s: inside: %w", s, p.Node, err)
	}
	outside, err := addresses(p.Outside)
	if err != nil {
		return fmt.Errorf("set nat %s at %s: outside: %w", s, p.Node, err)
	}
	wan := p.Port
	if wan == "" {
		wan = p.WAN
	}
	return conclude(kernel.SetNAT(kernel.NAT{
		Mode: kernel.NATMode(s), WAN: wan, Inside: inside, Outside: outside,
	}))
}

func (nat) Check(_ context.Context, _ Place, s State) check.Answer {
	if kernel.NATMode(s) == kernel.NATOff {
		return check.OK()
	}
	return answer(kernel.ProbeNAT(kernel.NATMode(s)))
}

// addresses reads addresses that may carry the length of their network.
func addresses(list []string) ([]netip.Addr, error) {
	var out []netip.Addr
	for _, text := range list {
		bare, _, _ := strings.Cut(text, "/")
		a, err := netip.ParseAddr(bare)
		if err != nil {
			return nil, err
		}
		out = append(out, a.Unmap())
	}
	return out, nil
}
