package knob

import (
	"context"
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

const maxIdleTunnels = 64

// IdleTunnels are N WireGuard tunnels of the kernel that are up, each with a peer and routes that the
// traffic does not match.
func IdleTunnels() Knob {
	return idleTunnels{declared{&factor.Declaration{
		Name:    "idle_tunnels",
		Unit:    "tunnels, 0 to 64",
		Doc:     "WireGuard tunnels of the router, up, that the traffic does not match",
		Without: &factor.Without{Level: "0", Words: "of the same without idle tunnels"},
		Long:    func(level string) string { return level + " idle tunnels" },
		Placed:  factor.Placed,
		Needs:   factor.NeedsRouter,
	}}}
}

type idleTunnels struct{ declared }

func (idleTunnels) Parse(text string) (State, error) {
	return number("idle_tunnels", text, 0, maxIdleTunnels)
}

func (idleTunnels) Read(context.Context, Place) (State, error) {
	n, err := kernel.IdleTunnels()
	s, err := state(n, err)
	return s, conclude(err)
}

func (idleTunnels) Apply(_ context.Context, _ Place, s State) error {
	n, err := strconv.Atoi(string(s))
	if err != nil {
		return refuse("idle_tunnels", string(s), "a number")
	}
	return conclude(kernel.SetIdleTunnels(n))
}

// Check makes a device, and deletes it, unless none is wanted.
func (idleTunnels) Check(_ context.Context, _ Place, s State) check.Answer {
	if s == "0" {
		return check.OK()
	}
	return answer(kernel.ProbeWireGuard())
}
