package knob

import (
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// TxQueueLen sets the default length of a device's queueing disciplines, in packets.
func TxQueueLen() Knob {
	return ofPorts(ofRouter(factor.Declaration{
		Name:    "txqueuelen",
		Unit:    "packets",
		Doc:     "length of the devices' transmit queue, in packets",
		Without: without("", "with the default txqueuelen"),
	}), numbers(0, 1_000_000), kernel.TxQueueLen, kernel.SetTxQueueLen)
}
