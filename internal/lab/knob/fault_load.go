package knob

import (
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/qdisc"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// FaultLimits returns the limits that a level of the factor "fault" imposes on an endpoint of the load
// generator.
func FaultLimits(level string) (l record.EndLimits, err error) {
	list, err := parseFaults(level)
	for _, f := range list {
		v, _ := parseLimit(f.level)
		size, _ := qdisc.Parameter{Quantity: qdisc.Bytes}.Parse(f.level)
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

// FaultyPath describes the faults of a path: the MTU of the tunnel in bytes, the queue length of the tunnel's
// devices in packets, and the size in bytes of the largest packet that passes a router. 0 means unchanged. If
// Bypass is set, the traffic is routed outside the tunnel.
type FaultyPath struct {
	TunnelMTU, TunnelQueue, Hole int
	Bypass                       bool
}

// PathFaults returns the faults of the path in a level of the factor fault.
func PathFaults(level string) (p FaultyPath) {
	list, _ := parseFaults(level)
	for _, f := range list {
		switch n, _ := strconv.Atoi(f.level); f.Name {
		case "tunnel_mtu":
			p.TunnelMTU = n
		case "tunnel_queue":
			p.TunnelQueue = n
		case "pmtu_hole":
			p.Hole = n
		case "bypass":
			p.Bypass = true
		}
	}
	return p
}
