package diagnosis

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// losing is the queue of the load's way that dropped most of its packets, and did not hold them back for a
// rate.
func (o *Observation) losing(keep func(queue) bool) (q queue, why string) {
	all, why := o.queues(false)
	if len(all) > 0 {
		why = ""
	}
	for _, one := range all {
		if keep(one) && one.lost() > q.lost() {
			q = one
		}
	}
	return q, why
}

func lossFact(name string, loss float64) evidence.Evidence {
	return fact(name, "", "", loss, unit.Percent(loss)+" of the load's packets were lost or sent again")
}

// smallQueue is a queue that drops bursts while neither rate nor CPU is at its limit.
func smallQueue() Rule {
	return Rule{Class: SmallQueue, Label: "a queue is too small", Means: "a FIFO drops 0.05 % of its " +
		"packets or " +
		"more, holds nothing back for a rate, and waiting adds little delay",
		Judge: func(o *Observation) Judgement {
			q, why := o.losing(func(q queue) bool { return !q.managed && q.kind != "netem" })
			if why != "" {
				return missing(why)
			}
			if q.drops == 0 {
				return Judgement{Score: absent, Facts: []evidence.Evidence{fact("drops", "", "", 0,
					"no FIFO of the load's way dropped a packet")}}
			}
			score := ramp(q.lost(), .0002, .0015, -3, 3) + ramp(q.overlimits, .02, .2, 0, -5) + o.wants()
			if q.kind != "" {
				score += .8
			}
			facts := []evidence.Evidence{fact("drops", q.node, q.port, q.drops, fmt.Sprintf("the queue of "+
				"%s "+
				"dropped %s of its packets", q.place(), unit.Percent(q.lost())))}
			if probes, tcp, least, ok := o.addedDelay(); ok {
				score += ramp(max(probes, min(tcp, probes+5e6)), 5e6, 25e6, .5, -3)
				facts = append(facts, against(fact("rtt_loaded_p50_ns", "", "", least+probes, "waiting "+
					"added "+
					milliseconds(probes)+" only"), least))
			}
			if s, why := o.systemOf(); why == "" {
				facts = append(facts, s.coreFact())
			}
			return Judgement{Score: score, Node: q.node, Element: q.port, Facts: facts,
				GainAtMost: o.gainToTester(),
				Text: fmt.Sprintf("the queue of %s is too small: it drops %s of the packets, and nothing "+
					"waits",
					q.place(), unit.Percent(q.lost()))}
		},
		Experiments: func(o *Observation, j Judgement) []Experiment {
			return append(rateDoses(o, j), Experiment{Class: j.Class, Factor: "queue@" + j.Node + "." +
				j.Element,
				Doses: []string{"pfifo limit 1000", "fq_codel"}, From: "router", Expect: 1,
				Why: "a longer queue loses no bursts: goodput rises"})
		},
		Remedies: []Remedy{
			{System: "linux", Do: "use a longer queue, best one that keeps delays short", Commands: []string{
				"tc qdisc replace dev DEV root fq_codel"}, Risk: "a long FIFO adds delay", Factor: "queue",
				Level: "fq_codel"},
			{System: "openwrt", Do: "use the default queue", Commands: []string{
				"tc qdisc replace dev DEV root fq_codel"}},
			{System: "routeros", Do: "use a queue type of more packets on the interface", Commands: []string{
				"/queue interface set INTERFACE queue=multi-queue-ethernet-default"},
				Risk: "latency under load"},
		}}
}

// bufferbloat is a queue in which packets wait for long: the rate is what it is, the delay is the trouble.
func bufferbloat() Rule {
	return Rule{Class: Bufferbloat, Label: "packets wait in a queue that is far too long", Ends: true,
		Means: "the median round trip beside the load is 55 ms or more above the least",
		Judge: func(o *Observation) Judgement {
			probes, tcp, least, ok := o.addedDelay()
			if !ok {
				return missing("the round trip beside the load is not known")
			}
			added := min(probes, max(tcp, probes/2))
			if !o.IsTCP() || tcp == 0 {
				added = probes
			}
			score := ramp(added, 30e6, 70e6, -4, 5.2)
			facts := []evidence.Evidence{against(fact("rtt_loaded_p50_ns", "", "", least+probes, "beside "+
				"the load "+
				"the median round trip of probes is "+milliseconds(least+probes)+" in the place of "+
				milliseconds(least)), least)}
			j := Judgement{Score: score, Element: "path", Facts: facts}
			if q, held, why := o.held(); why == "" && q.overlimits > .03 && held > -2 {
				j.Node, j.Element = q.node, q.port
				waits := added / 1e9 * q.rateBps / 8
				j.Text = fmt.Sprintf("the queue of %s is far too long: packets wait %s at %s, in about %s kB",
					q.place(),
					milliseconds(added), mbps(q.rateBps), unit.Significant(waits/1e3, 2))
				j.Facts = append(j.Facts, o.heldFacts(q)[0])
				return j
			}
			j.Score -= ramp(o.fullest(), .85, .97, 0, 6) // packets wait for a full CPU, too
			j.Text = "a queue on the path is far too long: packets wait " + milliseconds(added)
			return j
		},
		Experiments: rateDoses,
		Remedies: []Remedy{
			{System: "linux", Do: "let fq_codel or CAKE keep the queue short, below a shaper at the link's " +
				"rate",
				Commands: []string{"tc qdisc replace dev DEV root cake bandwidth RATE"}, Risk: "a shaper " +
					"costs CPU time",
				Factor: "queue", Level: "fq_codel"},
			{System: "openwrt", Do: "switch SQM on", Commands: []string{"uci set sqm.@queue[0].enabled=1",
				"uci commit sqm", "service sqm restart"},
				Risk: "a shaper costs CPU time; flow offload bypasses it"},
			{System: "routeros", Do: "use fq-codel or cake as the queue's type", Commands: []string{
				"/queue type add name=fq kind=fq-codel"}, Risk: "FastTrack bypasses queues"},
			{System: "freebsd", Do: "use a fq_codel scheduler", Commands: []string{
				"dnctl sched 1 config pipe 1 type fq_codel"}},
		}}
}

// fullest is how busy the busiest core was on which packets may have to wait, the router's or that of the
// machine that carries the lab.
func (o *Observation) fullest() float64 {
	most := 0.0
	for _, node := range append([]string{record.HostNode}, o.Routers()...) {
		if s, why := o.systemAt(node); why == "" {
			most = max(most, s.Full.Busy)
		}
	}
	return most
}

// reorderSigns are how often data arrived out of order, by what both ends count, per packet of the load; what
// was sent again though it had arrived, per segment sent again; and how often the sender saw, by what was
// acknowledged, that data was late and not lost. A kernel before 4.19 does not count the latter.
func (o *Observation) reorderSigns() (share, spurious, seen float64, ok bool) {
	sender, receiver := o.Ends()
	got, _ := o.Metric(metrics.Goodput)
	packets := got / 8 * o.Trial.Window.Seconds() / 1448
	ofo, ok := o.grew(receiver, "TcpExtTCPOFOQueue")
	dsack, _ := o.grew(sender, "TcpExtTCPDSACKRecv", "TcpExtTCPDSACKOfoRecv")
	again, _ := o.Metric(metrics.Retransmits)
	dups := 0.0
	for _, f := range o.Trial.Traffic.Flows {
		if f.TCP != nil {
			seen, dups = seen+float64(f.TCP.ReordSeen), dups+float64(f.TCP.DsackDups)
		}
	}
	seen = ratio(seen, packets)
	return max(ratio(ofo, packets), seen), ratio(max(dsack, dups), max(again, 1)), seen, ok || seen > 0
}

// reordering is packets that overtake each other.
func reordering() Rule {
	return Rule{Class: Reordering, Label: "packets overtake each other", Ends: true,
		Means: "5 % of the segments or more arrive out of order although few are lost, or 1 % of UDP's " +
			"packets do",
		Judge: func(o *Observation) Judgement {
			loss, name, ok := o.lossOf()
			if !ok {
				return missing("nothing counted lost packets")
			}
			if !o.IsTCP() {
				n, ok := o.Metric("reordered")
				rate, _ := o.Metric(metrics.PacketRate)
				if !ok {
					return missing("this way of counting packets does not see their order")
				}
				share := ratio(o.perSecond(n), rate)
				return Judgement{Score: ramp(share, .002, .02, -5, 3.5), Element: "path",
					Text: "packets overtake each other: " + unit.Percent(share) + " arrive out of order",
					Facts: []evidence.Evidence{fact("reordered", "", "", n, fmt.Sprintf(
						"%.0f packets arrived after one with a higher number", n))}}
			}
			share, spurious, seen, ok := o.reorderSigns()
			if !ok {
				return missing("the ends' protocol counters were not read")
			}
			// A lost segment makes what follows it wait out of order for a round trip: reordering shows where
			// more of that happens than losses can explain.
			score := ramp(share, .03, .15, -4, 2.5) + ramp(loss, .003, .02, .8, -1.5) +
				ramp(spurious, .1, .5, -.5, 1.5) + ramp(seen, 0, .002, 0, 1.5)
			if score > 0 {
				score += o.wants()
			}
			j := Judgement{Score: score, Element: "path", GainAtMost: o.gainToTester(),
				Text: fmt.Sprintf("packets overtake each other: %s of the segments arrive out of order, %s "+
					"were "+
					"sent again", unit.Percent(share), unit.Percent(loss)),
				Facts: []evidence.Evidence{fact("TcpExtTCPOFOQueue", "", "", share, unit.Percent(share)+
					" of the segments arrived out of order"), lossFact(name, loss), fact("TcpExtTCPDSACKRecv",
					"", "",
					spurious, unit.Percent(spurious)+" of what was sent again had arrived already")}}
			if seen > 0 {
				j.Facts = append(j.Facts, fact("reord_seen", "", "", seen, "the sender saw "+
					unit.Percent(seen)+" of the segments overtaken"))
			}
			j.Node, j.Element = o.delaying()
			return j
		},
		Experiments: streamDoses(0, "reordering slows each connection: more of them carry more"),
		Remedies: []Remedy{{System: "linux", Do: "do not spread one flow's packets over cores or links",
			Commands: []string{"ip link show type bond", "cat /sys/class/net/DEV/queues/rx-*/rps_cpus"},
			Risk:     "one flow has one core or link then"},
			{System: "linux", Do: "let senders bear more reordering", Commands: []string{
				"sysctl -w net.ipv4.tcp_reordering=30"}, Risk: "real losses are repaired later"}}}
}

// delaying is the port of the load's way whose queue keeps packets waiting, not for a rate: nowhere else are
// they put into another order.
func (o *Observation) delaying() (node, port string) {
	most := 0.0
	for _, h := range o.hops() {
		columns, _ := o.Columns(h.out.Node, "qdisc", "qlen_packets")
		for _, c := range columns {
			if v, ok := c.Mean(); ok && c.Label == h.out.Port && v > most {
				node, port, most = h.out.Node, h.out.Port, v
			}
		}
	}
	if node == "" {
		return "", "path"
	}
	return node, port
}

// randomLoss is packets that are lost whatever the rate.
func randomLoss() Rule {
	return Rule{Class: RandomLoss, Label: "packets are lost at random", Ends: true,
		Means: "0.15 % of the packets or more are lost although neither rate, queue nor policer explains " +
			"it, and " +
			"waiting adds little; probes are lost, too",
		Judge: func(o *Observation) Judgement {
			loss, name, ok := o.lossOf()
			if !ok {
				return missing("nothing counted lost packets")
			}
			facts := []evidence.Evidence{lossFact(name, loss)}
			score := ramp(loss, .001, .004, -4, 1.5)
			idle, _ := o.idle(metrics.ProbeLossIdle)
			loaded, _ := o.Metric(metrics.ProbeLoss)
			if loaded+idle > 0 {
				score += ramp(loaded+idle, 0, .01, 0, 1)
				facts = append(facts, fact(metrics.ProbeLoss, "", "", loaded, unit.Percent(loaded)+
					" of the probes were lost, "+unit.Percent(idle)+" on the idle path"))
			}
			if !o.FlatOut() && score > 0 {
				score++ // at a rate below what the path carries
			}
			if probes, tcp, least, ok := o.addedDelay(); ok {
				score += ramp(max(probes, min(tcp, probes+5e6)), 8e6, 30e6, .3, -2)
				facts = append(facts, against(fact("rtt_loaded_p50_ns", "", "", least+probes,
					"waiting added "+milliseconds(probes)), least))
			}
			j := Judgement{Element: "path", GainAtMost: o.gainToTester()}
			q, why := o.losing(func(q queue) bool { return q.overlimits < .03 })
			in, _ := o.queues(true)
			policed := 0.0
			for _, one := range in {
				policed += one.lost()
			}
			score -= ramp(policed, .0005, .003, 0, 5)
			switch {
			case why == "" && q.kind == "netem" && q.lost() > loss/3:
				// A queue that is made to lose packets, as links do.
				score += 2
				j.Node, j.Element = q.node, q.port
			case why == "" && q.lost() > loss/3:
				score -= 3.5 // it overflows
			}
			if h, _, why := o.held(); why == "" {
				score -= ramp(h.overlimits, .05, .25, 0, 2.5)
			}
			if share, spurious, seen, ok := o.reorderSigns(); o.IsTCP() && ok {
				score -= ramp(spurious, .3, .7, 0, 2) + ramp(share, .3, .6, 0, 1) +
					ramp(seen, .0005, .005, 0, 3)
			}
			if uneven, ok := o.Metric(metrics.Consistency); ok && j.Node == "" {
				score -= ramp(uneven, .3, .6, 0, 1.5) // losses at random are spread evenly
			}
			j.Score, j.Facts = score, facts
			j.Text = "packets are lost at random: " + unit.Percent(loss) + " of them"
			if j.Node != "" {
				j.Text += " at " + q.place()
				j.Facts = append(j.Facts, fact("drops", q.node, q.port, q.drops, fmt.Sprintf("%.0f packets "+
					"were "+
					"dropped there", q.drops)))
			}
			return j
		},
		Experiments: rateDoses,
		Remedies: []Remedy{{System: "linux", Do: "look at the link: cable, optics, Wi-Fi, duplex",
			Commands: []string{
				"ethtool -S DEV | grep -iE 'err|drop|crc'", "ip -s -s link show dev DEV"}},
			{System: "linux", Do: "use a congestion control that loss does not slow down", Commands: []string{
				"sysctl -w net.ipv4.tcp_congestion_control=bbr"}, Risk: "it takes more from other flows"}}}
}
