package knob

import (
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// TxQueueLen is the length that a device's queueing disciplines take as their default, in packets.
func TxQueueLen() Knob {
	return &perPort[int]{declared: declared{&factor.Declaration{
		Name: "txqueuelen", Unit: "packets", Doc: "length of the devices' transmit queue, in packets",
		Placed: factor.Placed, Needs: factor.NeedsRouter,
		Without: &factor.Without{Words: "of the same with the default txqueuelen"},
	}}, spelling: numbers(0, 1_000_000), read: kernel.TxQueueLen, apply: kernel.SetTxQueueLen}
}
