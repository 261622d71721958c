package diagnosis

import (
	"cmp"
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Cost of comparing a packet with one rule, in rounds of the loop that the probe clock times: measured with
// lists of 2,000 to 5,000 rules, on a CPU and in emulation, where the kernel's interpreter is itself
// interpreted. IPv6 costs more: an address of 16 bytes takes none of nftables' fast paths (nft_do_chain,
// net/netfilter/nf_tables_core.c).
const (
	ruleRounds         = 3.5
	ruleRoundsIPv6     = 16.0
	ruleRoundsEmulated = 60.0
)

// ruleList returns the rule for a packet filter that compares each packet with a long list.
func ruleList() Rule {
	return Rule{Class: RuleList, Label: "the packet filter's rule list takes the CPU time",
		Means: "matching the forwarded packets against all rules takes at least 35 % of the busy time, as " +
			"estimated from rule count, packet rate and CPU speed, and a core is saturated",
		Judge: func(o *Observation) Judgement {
			s, why := o.systemOf()
			routers := o.Routers()
			if why != "" || len(routers) == 0 {
				return missing(cmp.Or(why, "the topology has no router"))
			}
			node := s.Node
			if node == record.HostNode {
				node = routers[0]
			}
			rules, why := o.level(node, "filter", "filter_rules")
			if why != "" {
				return missing(why)
			}
			if reached, known := o.rulesOnWay(node); known {
				rules = min(rules, reached)
			}
			packets, ok := o.forwarded(node)
			if !ok {
				return missing("the packets of the " + node + "'s ports were not counted")
			}
			loop, why := o.level(s.Node, "clock", "loop_rate_best_hz")
			if why != "" {
				return missing(why)
			}
			rounds := ruleRounds
			switch {
			case o.Run.Node(node).CPUs == record.CPUsEmulated:
				rounds = ruleRoundsEmulated
			case o.Factor(factor.IP) == "6":
				rounds = ruleRoundsIPv6
			}
			other, _, _ := o.otherWork(s)
			share := min(ratio(rules*o.perSecond(packets)*rounds/loop, max(s.Busy-other, .1)), .95)
			// One core after the other works on a single stream, and none need be full.
			spread := degree(s.Full.Busy, .5, .75)
			full := requires("full-core", max(s.full().Met, min(degree(share, .4, .7), spread)))
			matching := requires("matching", degree(share, .05, .35))
			j := Judgement{Node: node, Element: "forward", GainAtMost: 1 / (1 - share),
				Text: fmt.Sprintf("the %s's packet filter matches each packet against %.0f rules", node,
					rules),
				Facts: factList{fact("filter_rules", node, "forward", rules,
					fmt.Sprintf("the packet filter has %.0f rules", rules)),
					fact("filter_cpu_ratio", node, "forward", share, "at this packet rate they take "+
						"about "+unit.Percent(share)+" of the CPU time used"), s.coreFact()}}
			// A rule may cost many times what the simplest do: the number of rules excludes nothing.
			switch {
			case rules == 0:
				matching = matching.by(j.Facts[0])
			case min(full.Met, 1-o.satisfied().Met) < .5:
				j.Facts = factList{s.coreFact(), j.Facts[0]}
				full = full.by(j.Facts[0])
			default:
				j.Undecided = fmt.Sprintf("the packet filter has %.0f rules; what each costs a packet was "+
					"not measured (about %s of the CPU time used if it costs what the simplest do)", rules,
					unit.Percent(share))
			}
			j.Terms = []Term{full, matching}
			return j
		},
		Experiments: cpuDoses,
		Remedies: []Remedy{
			{System: "linux", Do: "accept established connections first; match addresses with a set or map",
				Commands: []string{"nft insert rule inet filter forward ct state established,related accept"},
				Risk:     "later rules no longer see these packets"},
			{System: "linux", Do: "let established connections skip the rules (nftables flowtable)",
				Risk:   "they also skip the rules that classify for queues",
				Factor: FlowtableFactor, Level: "on", When: (*Observation).notOffloaded},
			{System: "openwrt", Do: "use an ipset instead of single rules"},
			{System: "openwrt", Do: "enable software flow offloading",
				Commands: []string{"uci set firewall.@defaults[0].flow_offloading=1", "uci commit firewall",
					"service firewall restart"}, Risk: "SQM is bypassed",
				Factor: FlowtableFactor, Level: "on", When: (*Observation).notOffloaded},
			{System: "routeros", Do: "put the rule for established connections first, and use address lists",
				Commands: []string{"/ip firewall filter add chain=forward connection-state=established," +
					"related action=accept place-before=0"}, Risk: "later rules no longer see them"},
			{System: "freebsd", Do: "use tables in pf, and keep state",
				Commands: []string{"pfctl -t T -T add A"}},
		}}
}
