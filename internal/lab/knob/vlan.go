package knob

import (
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// VLANDevice is the device that has a port's addresses when the knob vlan is in state s there: the port
// itself, or PORT.ID.
func VLANDevice(port string, s State) string {
	each := parts(s)
	id, ok := each[port]
	if !ok {
		id = each[""]
	}
	if id == "" || id == "off" {
		return port
	}
	return port + "." + string(id)
}

// VLAN puts a tag (IEEE 802.1Q) on a link: "off" or 1 to 4094. It must be set on both ends. The port's
// addresses and routes move to the device PORT.ID.
func VLAN() Knob {
	return &perPort{
		declared: declared{&factor.Declaration{
			Name:    "vlan",
			Unit:    "off, or a tag from 1 to 4094",
			Doc:     "802.1Q tag on the links, or off",
			Target:  factor.EveryNode,
			Without: &factor.Without{Words: "of the same without VLAN tag"},
			Placed:  factor.Placed,
		}},
		parse: func(text string) (State, error) {
			if text == "off" {
				return "off", nil
			}
			s, err := number("vlan", text, 1, 4094)
			if err != nil {
				return "", refuse("vlan", text, "off or a number from 1 to 4094")
			}
			return s, nil
		},
		read: func(dev string) (State, error) {
			id, err := kernel.VLAN(dev)
			if err == nil && id == 0 {
				return "off", nil
			}
			return state(id, err)
		},
		apply: func(dev string, s State) error {
			if s == "off" {
				return kernel.SetVLAN(dev, 0)
			}
			id, err := strconv.Atoi(string(s))
			if err != nil {
				return refuse("vlan", string(s), "off or a number")
			}
			return kernel.SetVLAN(dev, id)
		},
		check: func(_ string, s State) check.Answer {
			if s == "off" {
				return check.OK()
			}
			return answer(kernel.ProbeVLAN())
		},
	}
}
