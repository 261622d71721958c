package knob

import (
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

const maxTxQueueLen = 1_000_000

// TxQueueLen is the length that a device's queueing disciplines take as their default, in packets.
func TxQueueLen() Knob {
	return &perPort{
		declared: declared{&factor.Declaration{
			Name:   "txqueuelen",
			Unit:   "packets",
			Doc:    "length of the devices' transmit queue, in packets",
			Placed: factor.Placed,
			Needs:  factor.NeedsRouter,
		}},
		parse: func(text string) (State, error) {
			return number("txqueuelen", text, 0, maxTxQueueLen)
		},
		read: func(dev string) (State, error) {
			n, err := kernel.TxQueueLen(dev)
			return state(n, err)
		},
		apply: func(dev string, s State) error {
			n, err := strconv.Atoi(string(s))
			if err != nil {
				return refuse("txqueuelen", string(s), "a number")
			}
			return kernel.SetTxQueueLen(dev, n)
		},
	}
}
