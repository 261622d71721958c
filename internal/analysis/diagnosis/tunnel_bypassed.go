package diagnosis

import (
	"cmp"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
)

// tunnelBypassed returns the rule for traffic that does not take the tunnel.
func tunnelBypassed() Rule {
	return Rule{Class: TunnelBypassed, Label: "the traffic bypasses the tunnel", Ends: true,
		Means: "the tunnel's counters do not account for the payload that arrived",
		Judge: func(o *Observation) Judgement {
			for _, r := range o.Reasons {
				if r.Kind != evidence.ReasonNotInTunnel {
					continue
				}
				j := Judgement{Terms: []Term{requires("not-in-tunnel", 1)}, Facts: slices.Clone(r.Facts),
					Text: "the traffic bypasses the tunnel: " + r.Text}
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
				return missing("no counter proves the path")
			}
			got, _ := o.Metric(metrics.Goodput)
			return Judgement{Score: absent, Facts: factList{fact(metrics.Goodput, "", o.tunnel(),
				got, "the tunnel's counters account for the payload that arrived")}}
		},
		Remedies: []Remedy{{Do: "look for a second route between the ends; compare it with the " +
			"tunnel peer's allowed IPs", Commands: []string{"ip route get ADDRESS", "wg show"}}}}
}
