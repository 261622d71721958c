package knob

import (
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// MSSClamp lowers the MSS option of TCP (RFC 9293, section 3.7.1) in forwarded packets. "pmtu" lowers the MSS
// to what fits the MTU of the packet's route, and a number lowers it to that number of bytes. "off" changes
// nothing.
func MSSClamp() Knob {
	const least, most = 536, 9000
	wrong := want("off, pmtu, or bytes from %d to %d", least, most)
	return ofTable(ofRouter(factor.Declaration{
		Name: "mss_clamp",
		Unit: "off, pmtu, or bytes, 536 to 9000",
		Doc: "value to which the router lowers TCP's MSS option: what the MTU of the route permits " +
			"(pmtu), or a number of bytes",
		Without: without("off", "without MSS clamping"),
		Needs:   factor.NeedsForwarding,
	}),
		spelling[int]{
			parse: func(text string) (int, error) {
				switch text {
				case "off":
					return 0, nil
				case "pmtu":
					return kernel.ClampToPMTU, nil
				}

				size, err := strconv.Atoi(text)
				if err != nil || size < least || size > most {
					return 0, wrong
				}

				return size, nil
			},
			spell: func(size int) State {
				switch size {
				case 0:
					return "off"
				case kernel.ClampToPMTU:
					return "pmtu"
				}
				return strconv.Itoa(size)
			},
		}, kernel.MSSClamp)
}
