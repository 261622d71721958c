package knob

import (
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// VLANDevice returns the device that has the addresses of a port if s is the state of the knob vlan. This is
// the port itself or PORT.ID.
func VLANDevice(port string, s State) string {
	id := of(parts(s), port)
	if id != "" && id != "off" {
		return port + "." + id
	}
	return port
}

// VLAN sets an IEEE 802.1Q tag on a link. The state is "off" or a number from 1 to 4094. It must be set at
// both ends of the link. The addresses and routes of the port move to the device PORT.ID.
func VLAN() Knob {
	k := ofPorts(declared{factor.Declaration{
		Policy:  true,
		Name:    "vlan",
		Unit:    "off, or a tag from 1 to 4094",
		Doc:     "802.1Q tag on the links, or off",
		Target:  factor.EveryNode,
		Without: without("", "without VLAN tag"),
		Placed:  factor.Placed,
	}}, spelling[int]{
		parse: func(text string) (int, error) {
			n, err := strconv.Atoi(text)
			if text != "off" && (err != nil || n < 1 || n > 4094) {
				return 0, want("off or a number from 1 to 4094")
			}
			return n, nil
		},
		spell: func(id int) State {
			if id == 0 {
				return "off"
			}
			return strconv.Itoa(id)
		},
	}, kernel.VLAN, kernel.SetVLAN)
	k.always = "off"
	k.check = func(_ Place, id int) error {
		return kernel.OnProbeLink(func(dev string) error {
			if err := kernel.Up(dev); err != nil { // because a tagged device comes up only if its port is up
				return err
			}
			return kernel.SetVLAN(dev, id)
		})
	}
	return k
}
