package diagnosis

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
