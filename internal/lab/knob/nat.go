package knob

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// NAT sets the IPv4 address translation of a router at its WAN port. "masquerade" translates connections from
// the inside, and "forward" translates connections from the outside to ports 20000 to 20999 of the router's
// WAN address. "off" removes the translation. IPv6 is forwarded untranslated. If the WAN port has a VLAN tag,
// Place.Port must name the tagged device (VLANDevice), because the rules refer to it.
func NAT() Knob {
	return &kernelKnob[State]{
		declared: declared{factor.Declaration{Name: "nat", Doc: "address translation on the router"}},
		spelling: words(string(kernel.NATOff), string(kernel.NATMasquerade), string(kernel.NATForward)),
		read: func(Place) (State, error) {
			mode, err := kernel.ReadNAT()
			return State(mode), err
		},
		apply: applyNAT,
		check: func(p Place, s State) error {
			if s == State(kernel.NATForward) && len(p.Inside) == 0 {
				return cannot("%s has no client to forward to", p.Node)
			}
			return kernel.ProbeNAT(kernel.NATMode(s))
		},
		always: State(kernel.NATOff),
	}
}

func applyNAT(p Place, s State) error {
	inside, err1 := addresses(p.Inside)
	outside, err2 := addresses(p.Outside)
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("set nat %s at %s: %w", s, p.Node, err)
	}

	return kernel.SetNAT(kernel.NAT{
		Mode:    kernel.NATMode(s),
		WAN:     cmp.Or(p.Port, p.WAN),
		Inside:  inside,
		Outside: outside,
	})
}

// addresses parses IP addresses that may have a prefix length.
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
