package knob

import (
	"math"
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

const conntrackMax = "net.netfilter.nf_conntrack_max"

// ConntrackMax sets the maximum number of connections that a node tracks. Packets of further connections are
// dropped. The setting has an effect only if something requires tracking, such as nat or a stateful firewall.
// In most kernels, it applies to the whole machine, so it can be set only on a node that has its own kernel.
func ConntrackMax() Knob {
	k := ofNode(ofRouter(factor.Declaration{
		Name:    "conntrack_max",
		Unit:    "connections",
		Doc:     "maximum number of connections that the router tracks",
		Without: without("", "with the default conntrack_max"),
	}), numbers(1, math.MaxInt32), func() (int, error) {
		value, err := kernel.ReadSysctl(conntrackMax)
		if err != nil {
			return 0, absent(err)
		}
		return strconv.Atoi(value)
	}, func(n int) error { return absent(kernel.WriteSysctl(conntrackMax, strconv.Itoa(n))) })
	k.check = func(Place, int) error {
		return writable(conntrackMax, "it belongs to the whole machine: take a lab whose router has a "+
			"kernel of its own, such as vm")
	}
	return k
}
