package diagnosis

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// softirqOneCore is a router whose packets are all moved by one core while another has time.
func softirqOneCore() Rule {
	return Rule{Class: SoftirqOneCore, Label: "one core of the router is saturated by softirq",
		Means: "a core of the router is busy for 93 % of the window or more, most of it in interrupts and " +
			"softirqs, while another idles for 40 % or more",
		Judge: func(o *Observation) Judgement {
			s, why := o.ownSystem()
			if why != "" {
				return missing(why)
			}
			facts := []evidence.Evidence{s.coreFact(), s.softirqFact()}
			if len(s.Cores) == 1 {
				return Judgement{Score: absent, Facts: []evidence.Evidence{fact("cpu_cores", s.Node, "", 1,
					"the "+s.Node+" has one core")}}
			}
			score := o.full(s, 2.5) + ramp(ratio(s.Full.Softirq+s.Full.IRQ, s.Full.Busy), .3, .7, -4, .5) +
				ramp(1-s.Slack.Busy, .1, .4, -3, .5) - o.heldDown(s.Node)
			if o.tunnel() != "" {
				score -= 1 // see oneTunnelOneCore
			}
			return Judgement{Score: score, Node: s.Node, Element: s.Full.Name,
				Text: fmt.Sprintf("the %s's %s is saturated by softirq while %s idles for %s: one "+
					"receive queue",
					s.Node, coreName(s.Full.Name), coreName(s.Slack.Name), unit.Percent(1-s.Slack.Busy)),
				GainAtMost: ratio(float64(len(s.Cores))*s.Full.Busy, s.Busy), Facts: facts}
		},
		Experiments: cpuDoses,
		Remedies:    spreadRemedies()}
}

// spreadRemedies spread the receive work over cores.
func spreadRemedies() []Remedy {
	return []Remedy{
		{System: "linux", Do: "let all cores process received packets (receive packet steering)",
			Commands: []string{"for q in /sys/class/net/*/queues/rx-*/rps_cpus; do echo ff > $q; done"},
			Risk: "packets cross cores, which costs more in all; worse where every flow is already on a " +
				"core of its own", Factor: "cpus", Level: "0-1"},
		{System: "linux", Do: "give each port's interrupts a core of their own",
			Commands: []string{"echo 2 > /proc/irq/N/smp_affinity"},
			Risk:     "irqbalance moves them again; stop it first", Factor: "irq_affinity", Level: "0-1"},
		{System: "linux", Do: "receive in kernel threads, which the scheduler spreads (threaded NAPI)",
			Commands: []string{"echo 1 > /sys/class/net/DEV/threaded"}, Risk: "latency rises under load",
			Factor: "napi_threaded", Level: "on"},
		{System: "openwrt", Do: "switch packet steering on", Commands: []string{
			"uci set network.globals.packet_steering=1", "uci commit network", "service network reload"},
			Risk: "1 can be worse than 0, and 2 (all cores) better than either: measure each"},
		{System: "routeros", Do: "spread the ports' interrupts", Commands: []string{
			"/system resource irq print", "/system resource irq set N cpu=auto"}},
		{System: "freebsd", Do: "let netisr threads of all cores process packets", Commands: []string{
			"sysctl net.isr.dispatch=deferred", "echo net.isr.maxthreads=-1 >> /boot/loader.conf"},
			Risk: "for IPsec VTI it took 55 % of the rate (netbenches)"},
	}
}

// softirqAllCores is a router whose cores are all full of packet work.
func softirqAllCores() Rule {
	return Rule{Class: SoftirqAllCores, Label: "all cores of the router are saturated by softirq",
		Means: "every core of the router is busy for 93 % of the window or more, most of it in interrupts " +
			"and softirqs",
		Judge: func(o *Observation) Judgement {
			s, why := o.ownSystem()
			if why != "" {
				return missing(why)
			}
			score := ramp(s.Slack.Busy, .70, .93, unlikely, 2.5) + o.wants() +
				ramp(ratio(s.softirq(), s.Busy), .3, .7, -4, .5) - o.heldDown(s.Node)
			text := fmt.Sprintf("all %d cores of the %s are saturated by softirq", len(s.Cores), s.Node)
			if len(s.Cores) == 1 {
				text = "the " + s.Node + "'s only core is saturated by softirq"
			}
			return Judgement{Score: score, Node: s.Node, Element: "cpu", Text: text,
				Facts: []evidence.Evidence{s.coreFact(), s.softirqFact()}}
		},
		Experiments: cpuDoses,
		Remedies: []Remedy{
			{System: "linux", Do: "let known connections skip the forwarding path (nftables' flow table)",
				Commands: []string{"nft add flowtable inet filter f '{ hook ingress priority 0; devices = " +
					"{ lan, wan }; }'", "nft add rule inet filter forward ip protocol tcp flow add @f"},
				Risk:   "packets of offloaded connections pass no queue's rules and no later rule",
				Factor: "flowtable", Level: "on"},
			{System: "openwrt", Do: "switch software flow offload on; where the hardware has it, hardware's",
				Commands: []string{"uci set firewall.@defaults[0].flow_offloading=1", "uci commit firewall",
					"service firewall restart"},
				Risk: "SQM is bypassed, and IPv6 may become slower; hardware offload blinds counters"},
			{System: "routeros", Do: "let known connections take FastTrack", Commands: []string{
				"/ip firewall filter add chain=forward connection-state=established,related " +
					"action=fasttrack-connection place-before=0"}, Risk: "it bypasses queues and IPsec"},
			{System: "freebsd", Do: "stop harvesting entropy from packets", Commands: []string{
				"sysctl kern.random.harvest.mask=351"}, Risk: "less entropy; it brought 3 % (netbenches)"},
		}}
}

// cpuDoses take a part of the CPU away: goodput then falls in proportion where the CPU limits. From the
// tester's side, smaller packets at the same bit rate cost more of them.
func cpuDoses(o *Observation, j Judgement) []Experiment {
	out := []Experiment{{Class: j.Class, Factor: "mss", Doses: []string{"1200", "900", "700"},
		Resource: []float64{.83, .62, .48}, From: "tester", Expect: 1, Why: "a CPU that is full moves a " +
			"number of packets: with smaller ones, goodput falls as their size does"}}
	if !o.IsTCP() {
		out = nil
	}
	for _, node := range o.Routers() {
		if o.Run.Node(node).Guest() {
			return append(out, Experiment{Class: j.Class, Factor: "cpu_quota@host",
				Doses: []string{"90%", "80%", "70%"}, Resource: []float64{.9, .8, .7}, From: "router",
				Expect: 1,
				Why:    "with a part of the core's time, a full core moves that part of the packets"})
		}
	}
	return out
}
