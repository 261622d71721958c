package diagnosis

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// oneFlow returns the rule for a single connection on a machine that runs all roles: sender, router and
// receiver work on its packets in turn, so that no core is full and only a second connection would gain.
func oneFlow() Rule {
	return Rule{Class: OneFlow, Label: "one connection keeps this machine's cores busy in turn", Quiet: true,
		Means: "one machine runs all roles of the lab, and carries a single TCP connection: its cores are " +
			"busy for at least 55 % of the window, none of them all the time, TCP always has data and " +
			"waits for no window or buffer, and queueing adds less than half a millisecond",
		Judge: func(o *Observation) Judgement {
			if !o.Shared() || !o.IsTCP() || o.load().Streams > 1 || o.load().Direction == record.Both {
				return Judgement{Score: absent}
			}
			s, why := o.systemAt(record.HostNode)
			if why != "" {
				return missing(why)
			}
			held, ok := o.Metric(metrics.NetworkLimited)
			probes, tcp, least, timed := o.addedDelay()
			loss, _, counted := o.resent()
			if !ok || !timed || !counted {
				return missing("what TCP waits for is not known")
			}
			mean, rules := s.Busy/float64(len(s.Cores)), 0.0
			for _, node := range o.Routers() {
				n, _ := o.level(node, "filter", "filter_rules")
				rules = max(rules, n) // their cost was not measured
			}
			facts := factList{fact("host_cpu_ratio", record.HostNode, "cpu", mean, "all cores together "+
				"were busy for "+unit.Percent(mean)+" of the window"), fact(metrics.NetworkLimited, "", "",
				held, "neither the application nor a window nor a buffer held TCP back for "+
					unit.Percent(held)+" of the time"),
				delayFact(least, probes, "queueing added only "+unit.Nanoseconds(probes)), s.coreFact()}
			return Judgement{Node: record.HostNode, Element: "cpu", Facts: facts,
				Terms: []Term{requires("busy-cores", degree(mean, .35, .55)).by(facts[0]),
					contradicts("full-cores", degree(mean, .88, .96)),
					requires("network-limited", degree(held, .6, .9)),
					requires("empty-queues", degree(min(probes, tcp), 1e6, 3e5)),
					contradicts("lossy", degree(loss, .01, .03)),
					contradicts("many-rules", degree(rules, 4, 40)), o.knownUser(s)},
				Text: fmt.Sprintf("this machine's %d cores work on one connection's packets in turn: they "+
					"are busy for %s, and none is full", len(s.Cores), unit.Percent(mean))}
		},
		Experiments: always(Experiment{Factor: "streams", Fix: "4", From: FromTester, Expect: 1,
			Why: "several connections keep all cores at work at once: goodput grows"}),
		Remedies: []Remedy{{Do: "measure with several streams, or use a separate machine for each role " +
			"(peer)"}}}
}
