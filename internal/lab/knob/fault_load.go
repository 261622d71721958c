package knob

import (
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// FaultLimits are what a level of the factor fault holds the load generator at an end to.
func FaultLimits(level string) (l record.EndLimits, err error) {
	list, err := parseFaults(level)
	for _, f := range list {
		v, _ := parseLimit(string(f.level))
		size, _ := parseQuantity(kernel.Parameter{Quantity: kernel.Bytes}, string(f.level))
		switch f.Name {
		case "slow_reader":
			l.ReadRateBps = float64(v)
		case "slow_writer":
			l.WriteRateBps = float64(v)
		case "receive_buffer":
			l.ReceiveBuffer = int(size)
		case "send_buffer":
			l.SendBuffer = int(size)
		}
	}
	return l, err
}

// FaultTunnel is what a level of the factor fault makes of the tunnel: its MTU, 0 as it was, and whether the
// traffic goes past it.
func FaultTunnel(level string) (mtu int, bypass bool) {
	list, _ := parseFaults(level)
	for _, f := range list {
		switch f.Name {
		case "tunnel_mtu":
			mtu, _ = strconv.Atoi(string(f.level))
		case "bypass":
			bypass = true
		}
	}
	return mtu, bypass
}
