package main

import (
	"math"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/model"
	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
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

// TestOneBoundForALine: limits, advise and predict give a line the same goodput in each tunnel.
func TestOneBoundForALine(t *testing.T) {
	c := &catalogue.Catalogue{Devices: []catalogue.Device{{Name: "Box", Port: "1GbE"}}}
	for _, tunnel := range catalogTunnels {
		l, err := computeLimits(limitsOptions{
			tunnel:  tunnel,
			link:    "1G",
			linkMTU: 1500,
			ip:      4,
			outerIP: 4,
			stamps:  true,
		})
		if err != nil {
			t.Fatal(err)
		}

		n := model.Need{WANBps: 1e9, Tunnel: tunnel, MTU: model.FittingMTU(tunnel)}
		q := catalogue.Result{Device: "Box", Tunnel: tunnel, Protocol: "tcp"}
		for command, got := range map[string]float64{
			"advise":  n.GoodputBps(),
			"predict": model.Predict(c, nil, q, nil).AtMostBps,
		} {
			if math.Abs(got-l.TCP.Goodput) > 1 {
				t.Errorf("%s: %s has %g, limits %g", tunnel, command, got, l.TCP.Goodput)
			}
		}
	}
}
