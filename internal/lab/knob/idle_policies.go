package knob

import (
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// IdlePolicies loads N IPsec policies, which match no traffic, for each direction (out, in, forward) and IP
// version. These are as many policies as N tunnels between other networks would load. While any policy is
// loaded, the kernel looks up a policy for every packet. The knob does not require ESP in the kernel.
func IdlePolicies() Knob {
	k := ofNode(ofRouter(factor.Declaration{
		Policy:  true,
		Name:    "idle_policies",
		Unit:    "policies, 0 to 10000",
		Doc:     "number of IPsec policies, in each direction, that the traffic does not match",
		Without: without("0", "without idle policies"),
		Long:    func(level string) string { return level + " idle policies" },
	}), numbers(0, 10_000), kernel.IdlePolicies, kernel.SetIdlePolicies)
	k.check = func(Place, int) error {
		_, err := kernel.IdlePolicies()
		return err
	}
	return k
}
