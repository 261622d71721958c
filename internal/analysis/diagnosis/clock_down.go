package diagnosis

import (
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// clockDown describes a CPU that runs below its full speed: at a lower clock, or only part of the time.
var clockDown = rule(ClockDown, `
	label: the router's CPU runs below full speed
	means: the clock is capped at least 20 % below the hardware maximum while a core is \
		saturated; or a quota throttles a vCPU for 30 % of the window
	traits: in-router
	explains: random-loss reordering
	kind: packet
	planted: cpu_quota
	linux: let the CPU run at its maximum clock
		$ for p in /sys/devices/system/cpu/cpufreq/policy*; do cat $p/cpuinfo_max_freq > \
		$p/scaling_max_freq; echo performance > $p/scaling_governor; done
		risk: more power and heat
		plan: governor=performance
	linux: raise the CPU quota of the virtual machine or container
		risk: less CPU for its neighbours
		plan: cpu_quota=off
	openwrt: use the performance governor
		$ echo performance > /sys/devices/system/cpu/cpufreq/policy0/scaling_governor
		risk: more heat; lost on reboot
	routeros: set the CPU frequency to its maximum
		$ /system routerboard settings set cpu-frequency=auto
		risk: more heat; needs a reboot, and routerboard permitted in device-mode, which needs \
		the button or a power cycle
	freebsd: stop powerd, or set it to hiadaptive
		$ sysrc powerd_flags='-a hiadaptive'
		$ service powerd restart
		risk: more power
`, func(o *Observation) Candidate {
	node := tested(o)
	at := place{node, "cpu"}
	if share, ok := o.throttled(node, 0); ok {
		return at.candidate(requires("capped", share, .05, .3).by(throttledFact(node, share))).
			gain(1/max(1-share, .01)).
			text("the %s's CPU is throttled for %h of the window", node, share)
	}

	if o.Shared() {
		at.Node = record.HostNode
	}

	limit := need(o.level(at.Node, "cpufreq", "limit_hz"))
	hardware := need(o.level(at.Node, "cpufreq", "hardware_limit_hz"))
	s := need(o.systemAt(at.Node))
	lost := 1 - limit/max(hardware, limit)
	clock := unit.ScaleOf("Hz", limit).Text(limit)
	capped := against(at.fact("limit_hz", limit, "the clock limit is %s", clock), hardware)
	return at.candidate(requires("capped", lost, .03, .2).by(capped), s.full()).
		gain(1/max(1-lost, .01)).
		text("%s CPU clock is capped at %s, %h below the hardware maximum", s.of(), clock, lost)
})
