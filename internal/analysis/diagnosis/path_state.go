package diagnosis

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// offloadLost is a flow table that does not carry the connections, or no longer.
func offloadLost() Rule {
	return Rule{Class: OffloadLost, Label: "connections do not take the offload path",
		Means: "connections are offloaded at the window's beginning and a half fewer at its end; or a flow " +
			"table is on and carries less than a tenth of them",
		Judge: func(o *Observation) Judgement {
			routers := o.Routers()
			if len(routers) == 0 {
				return missing("the topology names no router")
			}
			node := routers[0]
			offloaded, why := o.Columns(node, "flows", "flows_offloaded")
			if why != "" {
				return missing(why)
			}
			tracked, why := o.level(node, "flows", "flows_tracked")
			if why != "" {
				return missing(why)
			}
			most, _ := offloaded[0].Largest()
			last := offloaded[0].last()
			on := o.Factor("flowtable") == "on"
			if !on && most == 0 {
				return missing("no connection is offloaded, and no flow table is on")
			}
			score := ramp(ratio(last, most), .5, .9, 3, -4)
			share := ratio(most, tracked)
			if on {
				score = max(score, ramp(share, .1, .5, 3, -4))
			}
			return Judgement{Score: score + o.wants(), Node: node, Element: "flowtable",
				Text: fmt.Sprintf("the %s's flow table carries %.0f of %.0f connections at the "+
					"end, %.0f at most", node, last, tracked, most),
				Facts: []evidence.Evidence{against(fact("flows_offloaded", node, "flowtable", last,
					fmt.Sprintf("%.0f connections were offloaded at the end, %.0f at most", last,
						most)), most)}}
		},
		Experiments: func(_ *Observation, j Judgement) []Experiment {
			return []Experiment{{Class: j.Class, Factor: "streams", Doses: []string{"1", "16", "256"},
				From: "tester", Why: "where a table's room is the limit, few connections keep their offload"},
				{Class: j.Class, Factor: "flowtable", Doses: []string{"off", "on"}, From: "router",
					Why: "switched off and on, connections enter the table again"}}
		},
		Remedies: []Remedy{
			{System: "linux", Do: "see that the rule that adds flows is reached", Commands: []string{
				"nft list ruleset | grep -B2 'flow add'"}, Factor: "flowtable", Level: "on"},
			{System: "openwrt", Do: "restart the firewall, which fills the table again", Commands: []string{
				"service firewall restart"}, Risk: "connections may break"},
			{System: "routeros", Do: "see that the FastTrack rule is first and counts", Commands: []string{
				"/ip firewall filter print stats where action=fasttrack-connection"}},
		}}
}

// last is the last reading of a level in the window.
func (c Column) last() float64 {
	last := 0.0
	for i, t := range c.curve.T {
		if t >= c.w.Start && t <= c.w.End {
			last = c.curve.V[i]
		}
	}
	return last
}

// tunnelBypassed is traffic that does not take the tunnel.
func tunnelBypassed() Rule {
	return Rule{Class: TunnelBypassed, Label: "the traffic is not in the tunnel", Ends: true,
		Means: "the counters of the tunnel do not show the payload that arrived",
		Judge: func(o *Observation) Judgement {
			for _, r := range o.Reasons {
				if r.Kind != evidence.ReasonNotInTunnel {
					continue
				}
				j := Judgement{Score: 6, Text: "the traffic is not in the tunnel: " + r.Text,
					Facts: slices.Clone(r.Facts)}
				for i, f := range r.Facts {
					j.Node, j.Element = cmp.Or(j.Node, f.Node), cmp.Or(j.Element, f.Element)
					f.Metric, f.Text = cmp.Or(f.Metric, "tunnel_bytes"), cmp.Or(f.Text, r.Text)
					j.Facts[i] = f
				}
				return j
			}
			if factor.Tunnel.Is(o.Trial.Row.Factors, "", factor.NoTunnel) {
				return Judgement{Score: absent}
			}
			if o.Trial.Path == nil {
				return missing("nothing was counted that proves the path")
			}
			got, _ := o.Metric(metrics.Goodput)
			return Judgement{Score: absent, Facts: []evidence.Evidence{fact(metrics.Goodput, "", o.tunnel(),
				got, "the tunnel's counters show the payload that arrived")}}
		},
		Remedies: []Remedy{{Do: "look for a second route between the ends; compare with what the " +
			"tunnel's peer allows", Commands: []string{"ip route get ADDRESS", "wg show"}}}}
}

// sharedCPU is the natural limit of a lab whose roles share one machine's cores.
func sharedCPU() Rule {
	return Rule{Class: SharedCPU, Label: "the cores that all roles share", Quiet: true,
		Means: "a machine that carries all roles of a lab has no time left on its cores",
		Judge: func(o *Observation) Judgement {
			if o.Run.Near().CPUs != record.CPUsShared {
				return Judgement{Score: absent}
			}
			s, why := o.systemAt(record.HostNode)
			if why != "" {
				return missing(why)
			}
			mean := s.Busy / float64(len(s.Cores))
			score := ramp(mean, .70, .95, unlikely, 3.2) + o.wants() - o.knownUser(s)
			if routers := o.Routers(); !o.Shared() && len(routers) > 0 {
				// A guest that is at its own limit says more.
				if g, why := o.systemAt(routers[0]); why == "" {
					score -= ramp(g.Full.Busy, .7, .93, 0, 2.5)
				}
			}
			return Judgement{Score: score, Node: record.HostNode, Element: "cpu",
				Text: fmt.Sprintf("client, router and server share this machine's %d cores, which are full",
					len(s.Cores)),
				Facts: []evidence.Evidence{fact("host_cpu_ratio", record.HostNode, "cpu", mean,
					"all cores together were busy for "+unit.Percent(mean)+" of the window"), s.coreFact()}}
		},
		Experiments: func(_ *Observation, j Judgement) []Experiment {
			return []Experiment{{Class: j.Class, Factor: "mss", Doses: []string{"1200", "900", "700"},
				Resource: []float64{.83, .62, .48}, From: "tester", Expect: 1, Why: "full cores move a " +
					"number of packets, whoever's they are"}}
		},
		Remedies: []Remedy{{Do: "use a machine with more cores, or one machine for each role (peer)"}}}
}

// knownUser is what speaks for one user of shared cores, and so against their being full by themselves: a
// tunnel's process, the setting up of connections, work that is not the lab's.
func (o *Observation) knownUser(s system) float64 {
	other, _, _ := o.otherWork(s)
	known := ramp(other/float64(len(s.Cores)), .2, .5, 0, 1.5)
	if flows := o.Trial.Traffic.ShortFlows; flows != nil && !flows.Kept {
		known = 2
	}
	if took, why := o.tunnelProcesses(s); why == "" && o.Shared() && inUserspace(o.tunnel()) {
		known = max(known, ramp(took, .3, .8, 0, 2))
	}
	return known
}
