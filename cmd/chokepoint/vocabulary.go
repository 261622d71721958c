package main

import "github.com/chokepoint-lab/chokepoint/internal/plan"

// vocabulary is what plans may speak of.
func vocabulary() plan.Vocabulary {
	list := plan.List{Factors: plan.BaseFactors(plan.BaseOptions{
		Topologies: []string{"forward", "to-router", "site-to-site"},
		Tunnels:    []string{"none", "wireguard", "wireguard-kernel", "wireguard-userspace"},
		Engines:    []string{"native", "iperf3"}, Congestions: []string{"cubic", "reno", "bbr"},
	})}
	same := func(text string) (string, error) { return text, nil }
	for _, name := range []string{"link_mtu", "queue", "firewall", "vlan"} {
		list = list.Merge(plan.Factor{Name: name, Placed: true, Parse: same})
	}
	return list
}
