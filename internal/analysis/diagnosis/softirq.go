package diagnosis

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

// cpuSteps returns an experiment that reduces a guest's CPU time. If the CPU is the limit, goodput falls in
// proportion.
func cpuSteps(o *Observation) []Experiment {
	for _, node := range o.Routers() {
		if o.Run.Node(node).Guest() {
			return []Experiment{{
				Factor:   "cpu_quota@host",
				Steps:    []string{"80%", "60%", "45%"},
				Resource: []float64{.8, .6, .45},
				From:     FromRouter,
				Expect:   1,
				Why:      "a saturated core moves proportionally fewer packets with less CPU time",
			}}
		}
	}
	return nil
}
