package knob

import (
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// TxQueueLen sets the length of a device's transmit queue in packets. This length is the default limit of
// queueing disciplines on the device.
func TxQueueLen() Knob {
	return ofPorts(ofRouter(factor.Declaration{
		Name:    "txqueuelen",
		Unit:    "packets",
		Doc:     "length of each device's transmit queue",
		Without: without("", "with the default txqueuelen"),
	}), numbers(0, 1_000_000), kernel.TxQueueLen, kernel.SetTxQueueLen)
}
