package diagnosis

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// crossTraffic finds other traffic in the queue that limits the load.
func crossTraffic() Rule {
	return Rule{Class: CrossTraffic, Label: "other traffic takes a part of the limit",
		Means: "a queue throttles, and more than a tenth of what it sends is not the load's",
		Judge: func(o *Observation) Judgement {
			q, holds, why := o.held()
			if why != "" {
				return missing(why)
			}
			others := o.othersBps(q)
			share := ratio(others, q.rateBps)
			e := fact("others_bps", q.node, q.port, others, unit.Percent(share)+
				" of what the port sent is other traffic")
			return Judgement{Node: q.node, Element: q.port, GainAtMost: 1 / max(1-share, .1),
				Terms: append([]Term{requires("other-traffic", degree(share, .08, .25)).by(e)}, holds...),
				Text: fmt.Sprintf("%s of the %s that leave %s are not the load's", mbps(others),
					mbps(q.rateBps), q.place()),
				Facts: append(factList{e}, o.heldFacts(q)...)}
		},
		Remedies: []Remedy{{Do: "find out whose it is, and share the limit fairly or measure without it",
			Commands: []string{"tcpdump -n -c 200 -i DEV", "conntrack -L"}}}}
}

// othersBps subtracts the load, its headers and retransmissions from what a queue's port sent.
func (o *Observation) othersBps(q queue) float64 {
	got, ok := o.Metric(metrics.Goodput)
	segment := o.load().PacketSize
	if s := o.senderLedger(); s != nil {
		segment = s.MSS
	}
	if !ok || segment == 0 || o.tunnel() != "" || o.Trial.Traffic.ShortFlows != nil {
		return 0
	}
	const headers = 100 // of Ethernet, IPv6 and TCP with options
	again, _, _ := o.resent()
	return max(q.rateBps-got*(1+headers/float64(segment))/(1-min(again, .5)), 0)
}
