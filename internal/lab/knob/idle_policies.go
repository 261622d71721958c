package knob

import (
	"context"
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

const maxPolicies = 10_000

// IdlePolicies are N IPsec policies that the traffic does not match, for each direction (out, in, forward)
// and each version of IP, as N tunnels between other networks would have. The kernel then looks for a
// policy for every packet. It needs no ESP.
func IdlePolicies() Knob {
	return idlePolicies{declared{&factor.Declaration{
		Name:    "idle_policies",
		Unit:    "policies, 0 to 10000",
		Doc:     "IPsec policies per direction that the traffic does not match",
		Without: &factor.Without{Level: "0", Words: "of the same without idle policies"},
		Long:    func(level string) string { return level + " idle policies" },
		Placed:  factor.Placed,
		Needs:   factor.NeedsRouter,
	}}}
}

type idlePolicies struct{ declared }

func (idlePolicies) Parse(text string) (State, error) {
	return number("idle_policies", text, 0, maxPolicies)
}

func (idlePolicies) Read(context.Context, Place) (State, error) {
	n, err := kernel.IdlePolicies()
	s, err := state(n, err)
	return s, conclude(err)
}

func (idlePolicies) Apply(_ context.Context, _ Place, s State) error {
	n, err := strconv.Atoi(string(s))
	if err != nil {
		return refuse("idle_policies", string(s), "a number")
	}
	return conclude(kernel.SetIdlePolicies(n))
}

func (idlePolicies) Check(context.Context, Place, State) check.Answer {
	_, err := kernel.IdlePolicies()
	return answer(err)
}
