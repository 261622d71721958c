package knob

import (
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// IdleTunnels sets up N kernel WireGuard tunnels whose peers and routes match no traffic.
func IdleTunnels() Knob {
	return &kernelKnob[int]{
		declared: ofRouter(factor.Declaration{
			Policy:  true,
			Name:    "idle_tunnels",
			Unit:    "tunnels, 0 to 64",
			Doc:     "number of WireGuard tunnels on the router that are up but carry no traffic",
			Without: without("0", "without idle tunnels"),
			Long:    func(level string) string { return level + " idle tunnels" },
		}),
		spelling: numbers(0, 64),
		read:     func(Place) (int, error) { return kernel.IdleTunnels() },
		apply:    func(_ Place, n int) error { return kernel.SetIdleTunnels(n) },
		check: func(Place, int) check.Answer {
			return answer(kernel.ProbeWireGuard()) // creates a device and deletes it again
		},
		always: "0",
	}
}
