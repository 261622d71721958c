package diagnosis

import (
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Cost of matching a packet against one rule, in iterations of the loop that the clock probe times. It was
// measured with lists of 2,000 to 5,000 rules, on a real CPU and on an emulated one. In emulation, the
// kernel's rule interpreter is itself interpreted. IPv6 costs more because nftables has no fast path for
// addresses of 16 bytes (nft_do_chain, net/netfilter/nf_tables_core.c).
const (
	ruleRounds         = 3.5
	ruleRoundsIPv6     = 16.0
	ruleRoundsEmulated = 60.0
)

// ruleList describes a packet filter that matches each packet against a long list of rules.
var ruleList = rule(RuleList, `
	label: matching packets against the rules of the packet filter uses up the CPU
	means: matching the forwarded packets against all rules takes at least 35 % of the busy \
		time, as estimated from rule count, packet rate and CPU speed, and a core is saturated
	traits: in-router
	explains: busy-cores random-loss reordering
	kind: packet
	planted: rules cpu_quota
	costly: firewall
	linux: accept established connections first; match addresses with a set or map
		$ nft insert rule inet filter forward ct state established,related accept
		risk: later rules no longer see these packets
	linux: let established connections skip the rules (nftables flowtable)
		risk: they also skip the rules that classify for queues
		plan: flowtable=on
		when: not offloaded
	openwrt: use an ipset instead of single rules
	openwrt: enable software flow offloading
		$ uci set firewall.@defaults[0].flow_offloading=1
		$ uci commit firewall
		$ service firewall restart
		risk: SQM is bypassed
		plan: flowtable=on
		when: not offloaded
	routeros: put the rule for established connections first, and use address lists
		$ /ip firewall filter add chain=forward connection-state=established,related \
		action=accept place-before=0
		risk: later rules no longer see them
	freebsd: use tables in pf, and keep state
		$ pfctl -t T -T add A
`, func(o *Observation) Candidate {
	s := need(systemOf(o))
	node := need(o.firstRouter())
	if s.Node != record.HostNode {
		node = s.Node
	}

	rules := need(o.level(node, "filter", "filter_rules"))
	packets := need(o.forwarded(node))
	loop := need(o.level(s.Node, "clock", "loop_rate_best_hz"))
	if f := o.filterAt(node); f != nil && f.MoreChains == 0 {
		reached := 0 // rules that a forwarded packet may traverse
		for _, c := range f.Chains {
			if c.Hook != "input" && c.Hook != "output" {
				reached += c.Rules
			}
		}

		rules = min(rules, float64(reached))
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
	// Several cores process a single stream in turn, so none of them need be saturated.
	full := s.full()
	full.Met = max(full.Met, min(degree(share, .4, .7), degree(s.Full.Busy, .5, .75)))
	at := place{node, "forward"}
	count := at.fact("filter_rules", rules, "the packet filter has %.0f rules")
	matching := requires("matching", share, .05, .35)
	j := at.candidate().gain(1/(1-share)).
		text("the %s's packet filter matches each packet against %.0f rules", node, rules)
	// A rule may cost many times as much as the simplest one, so a short list does not exclude the class.
	switch {
	case rules == 0:
		matching = matching.by(count)
	case min(full.Met, 1-o.satisfied().Met) >= .5:
		full.By = nil
		j.Undecided = say("the packet filter has %.0f rules; what each costs a packet was not "+
			"measured (about %h of the CPU time used if it costs what the simplest do)", rules, share)
	}

	return j.with(full,
		matching).facts(count,
		at.fact("filter_cpu_ratio", share,
			"at this packet rate they take about %h of the CPU time used"),
		s.coreFact())
})
