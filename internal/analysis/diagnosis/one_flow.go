package diagnosis

import (
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// oneFlow describes a single connection on a machine that runs all roles. Sender, router and receiver process
// its packets in turn, so no core is saturated, and only more connections would raise the rate.
var oneFlow = rule("one-flow", `
	label: one connection occupies this machine's cores in turn
	means: one machine runs all roles of the lab, and the load is a single TCP connection; the cores \
		are busy for at least 55 % of the window, but none is saturated; TCP always has data to \
		send, no window or buffer limits it, and queueing adds less than half a millisecond
	traits: quiet busy-cores
	any: measure with several streams, or use a machine for each role (peer)
`, func(o *Observation) Candidate {
	if !o.Shared() || !o.IsTCP() || o.load().Streams > 1 || o.bothWays() {
		return excluded()
	}

	s := need(o.systemAt(record.HostNode))
	held, ok := o.Metric(metrics.NetworkLimited)
	d, timed := o.addedDelay()
	needs(ok && timed, "what TCP waits for is not known")
	rules := 0.0 // the cost of the rules was not measured
	for _, node := range o.Routers() {
		n, _ := o.level(node, "filter", "filter_rules")
		rules = max(rules, n)
	}

	return s.at("cpu").candidate(requires("busy-cores", s.mean(), .35, .55).by(s.meanFact()),
		contradicts("full-cores", s.mean(), .88, .96),
		requires("network-limited", held, .6, .9).by(networkFact(held)),
		requires("empty-queues", min(d.probes, d.tcp), 1e6, 3e5).by(
			d.fact("queueing added %n", d.probes)),
		contradicts("many-rules", rules, 4, 40),
		o.knownUser(s)).
		facts(s.coreFact()).
		text("this machine's %d cores work on one connection's packets in turn: they are busy for %h, "+
			"and none is full", len(s.Cores), s.mean())
}, removing(factor.Streams, "4",
	"several connections keep all cores at work at once: goodput grows"))
