package diagnosis

// softirqOneCore describes a router that processes all packets on one core while another is idle.
var softirqOneCore = Rule{
	Class: SoftirqOneCore,
	Text: `
		label: one core of the router is saturated by softirq
		means: a core of the router is busy for at least 93 % of the window, mostly in interrupts \
			and softirqs, while another idles for at least 40 %
		kind: packet
		planted: cpu_quota
	` + spreading,
	Check: given(ownSystem, func(o *Observation, s system) Candidate {
		if len(s.Cores) == 1 {
			return excluded(fact("cpu_cores", s.Node, "", 1, "the %s has one core", s.Node))
		}

		idles := 1 - s.Slack.Busy
		return s.at(s.Full.Name).candidate(s.full(),
			softirqWork(s.Full.Softirq+s.Full.IRQ, s.Full.Unclassified, s.Full.Busy).by(s.softirqFact()),
			requires("slack-core", idles, .1, .4).by(fact("cpu_idle_ratio", s.Node, s.Slack.Name, idles,
				"%s idled for %h", s.Slack, idles)),
			contradicts("tunnel", yes(o.tunnel() != ""))). // see oneTunnelOneCore
			gain(s.spreadGain()).
			text("the %s's %s is saturated by softirq while %s idles for %h: one receive queue", s.Node,
				s.Full, s.Slack, idles)
	}),
}

// spreading holds the remedies that spread receive processing over cores.
const spreading = `
	linux: spread received packets over all cores (receive packet steering, RPS)
		$ for q in /sys/class/net/*/queues/rx-*/rps_cpus; do echo ff > $q; done
		risk: moving packets between cores costs CPU time; worse if every flow already has its own core
		plan: cpus=0-1
		when: not steered
	linux: give each port's interrupts their own core
		$ echo 2 > /proc/irq/N/smp_affinity
		risk: irqbalance moves them back; stop it first
		plan: irq_affinity=0-1
	linux: receive in kernel threads that the scheduler can spread (threaded NAPI)
		$ echo 1 > /sys/class/net/DEV/threaded
		risk: more latency under load
		plan: napi_threaded=on
	openwrt: enable packet steering
		$ uci set network.globals.packet_steering=1
		$ uci commit network
		$ service network reload
		risk: 1 can be worse than 0, and 2 (all cores) better than either: measure each
	routeros: spread the ports' interrupts over the cores
		$ /system resource irq print
		$ /system resource irq set N cpu=auto
	freebsd: process packets in netisr threads on all cores
		$ sysctl net.isr.dispatch=deferred
		$ echo net.isr.maxthreads=-1 >> /boot/loader.conf
		risk: with IPsec VTI it cost 55 % of the rate (netbenches)
`
