package knob

import (
	"context"
	"math"
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

const conntrackMax = "net.netfilter.nf_conntrack_max"

// ConntrackMax is how many connections a node's connection tracking holds at most; packets of further ones
// are dropped. It matters where something asks for tracking, such as nat or a stateful firewall. In most
// kernels it belongs to the whole machine, so that only a node with a kernel of its own has it.
func ConntrackMax() Knob {
	return conntrack{declared{&factor.Declaration{
		Name:   "conntrack_max",
		Unit:   "connections",
		Doc:    "connections that the router tracks at most",
		Placed: factor.Placed,
		Needs:  factor.NeedsRouter,
	}}}
}

type conntrack struct{ declared }

func (conntrack) Parse(text string) (State, error) {
	return number("conntrack_max", text, 1, math.MaxInt32)
}

func (conntrack) Read(context.Context, Place) (State, error) {
	value, err := kernel.ReadSysctl(conntrackMax)
	if err != nil {
		return "", absent(err)
	}
	n, err := strconv.Atoi(value)
	return state(n, err)
}

func (conntrack) Apply(_ context.Context, _ Place, s State) error {
	return absent(kernel.WriteSysctl(conntrackMax, string(s)))
}

func (conntrack) Check(context.Context, Place, State) check.Answer {
	a := answer(kernel.SysctlWritable(conntrackMax))
	if a.State == check.No && a.Hint != "" {
		a.Hint = "it belongs to the whole machine: take a lab whose router has a kernel of its own, " +
			"such as vm"
	}
	return a
}
