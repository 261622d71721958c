package diagnosis

import (
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// conntrackInvalid describes a rule that drops packets of the load because connection tracking finds them
// invalid.
var conntrackInvalid = rule("conntrack-invalid", `
	label: a rule drops packets that connection tracking calls invalid
	means: packets are lost in a router that has a rule for ct state invalid or untracked; if the \
		rule has a counter, the counter grows
	traits: wasteful to-tester
	linux: let connection tracking see all packets of both directions, or make it \
		tolerate segments outside of the window
		$ sysctl -w net.netfilter.nf_conntrack_tcp_be_liberal=1
		$ nft list ruleset | grep -E 'invalid|notrack'
		risk: packets outside of the window pass
`, func(o *Observation) Candidate {
	d := need(o.died())
	r, ok := o.ownersRule(d.Node)
	if !ok || !slices.Contains(r.Kinds, record.RuleInvalid) {
		return excluded()
	}

	return place{d.Node, r.element()}.candidate(o.diesInside()...).
		text("%s: %s drops what fits no connection", d, r)
})
