package main

import (
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/overhead"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
)

// TestLimitsKnowsEveryTunnel: what a plan may name has its headers in limits.
func TestLimitsKnowsEveryTunnel(t *testing.T) {
	for _, name := range registry.Catalogue().Of(string(factor.Tunnel)).Levels {
		o := limitsOptions{
			tunnel:  name,
			link:    "1G",
			linkMTU: 1500,
			ip:      4,
			outerIP: 4,
			stamps:  true,
		}
		if err := o.validate(func(string) bool { return false }); err != nil {
			t.Errorf("%s: %v", name, err)
		}

		l, err := computeLimits(o)
		if err != nil || (l.TCP.Payload == 1448) != (name == factor.NoTunnel) {
			t.Errorf("%s: %v, %d bytes of payload", name, err, l.TCP.Payload)
		}

		if _, ok := overhead.Named(name); !ok && name != factor.NoTunnel {
			t.Errorf("%s: its headers are not known", name)
		}
	}
}
