package diagnosis

import (
	"fmt"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// conntrackInvalid finds a rule that drops packets of the load as invalid for connection tracking.
func conntrackInvalid() Rule {
	return Rule{Class: ConntrackInvalid, Wasteful: true,
		Label: "a rule drops packets that connection tracking calls invalid",
		Means: "packets die in a router that has a rule for ct state invalid or untracked, whose counter, " +
			"if it has one, grows",
		Judge: func(o *Observation) Judgement {
			d, why := o.died()
			if why != "" {
				return missing(why)
			}
			r, ok := o.ownersRule(d.node)
			if !ok || !slices.Contains(r.Kinds, record.RuleInvalid) {
				return Judgement{Score: absent}
			}
			words := fmt.Sprintf("%.0f of the %.0f packets that the ends miss died in the %s",
				min(d.packets, d.missed), d.missed, d.node)
			return Judgement{Node: d.node, Element: fmt.Sprintf("rule %d", r.Handle),
				Terms: o.diesInside(), GainAtMost: o.gainToTester(),
				Text:  words + ": " + r.String() + " drops what fits no connection",
				Facts: factList{fact(d.metric, d.node, "rules", d.packets, words+", in none of its queues")}}
		},
		Remedies: []Remedy{{System: "linux", Do: "let connection tracking see both directions whole, or be " +
			"liberal about windows", Commands: []string{
			"sysctl -w net.netfilter.nf_conntrack_tcp_be_liberal=1",
			"nft list ruleset | grep -E 'invalid|notrack'"}, Risk: "packets outside of windows pass"}}}
}
