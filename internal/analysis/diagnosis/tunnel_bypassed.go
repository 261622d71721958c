package diagnosis

import (
	"cmp"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
)

// tunnelBypassed describes traffic that does not take the tunnel.
var tunnelBypassed = rule(TunnelBypassed, `
	label: the traffic bypasses the tunnel
	means: the tunnel's counters do not account for the payload that arrived
	traits: ends any-rate
	any: look for a second route between the ends; compare it with the tunnel peer's allowed IPs
		$ ip route get ADDRESS
		$ wg show
`, func(o *Observation) Candidate {
	for _, r := range o.Reasons {
		if r.Kind == evidence.ReasonNotInTunnel {
			j := candidate(requires("not-in-tunnel", 1)).
				text("the traffic bypasses the tunnel: %s", r.Text)
			for _, f := range r.Facts {
				j = j.at(place{cmp.Or(j.Node, f.Node), cmp.Or(j.Element, f.Element)})
				f.Metric, f.Text = cmp.Or(f.Metric, "tunnel_bytes"), cmp.Or(f.Text, r.Text)
				j = j.facts(f)
			}
			return j
		}
	}

	if o.tunnel() == "" {
		return excluded()
	}

	needs(o.Trial.Path != nil, "no counter proves the path")
	return excluded(fact(metrics.Goodput, "", o.tunnel(), o.goodput(),
		"the tunnel's counters account for the payload that arrived"))
})
