package knob

import (
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// IdleTunnels sets up N kernel WireGuard tunnels whose peers and routes match no traffic.
func IdleTunnels() Knob {
	k := ofNode(ofRouter(factor.Declaration{
		Policy:  true,
		Name:    "idle_tunnels",
		Unit:    "tunnels, 0 to 64",
		Doc:     "number of WireGuard tunnels on the router that are up but carry no traffic",
		Without: without("0", "without idle tunnels"),
		Long:    func(level string) string { return level + " idle tunnels" },
	}), numbers(0, 64), kernel.IdleTunnels, kernel.SetIdleTunnels)
	k.check = func(Place, int) error { return kernel.ProbeWireGuard() } // creates and deletes a device
	k.always = "0"
	return k
}
