package diagnosis

import (
	"cmp"
	"fmt"
	"math"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// clockDown returns the rule for a CPU that is slower than it could be: held at a lower clock, or given only
// part of the time.
func clockDown() Rule {
	return Rule{Class: ClockDown, Label: "the router's CPU runs below full speed",
		Means: "the clock is capped at least 20 % below the hardware maximum while a core is saturated; or " +
			"a quota throttles a vCPU for 30 % of the window",
		Judge: given((*Observation).tested, func(o *Observation, node string) Judgement {
			if share, ok := o.throttled(node, 0); ok {
				e := fact("guest_throttled_ns", node, "vcpu", share,
					"a vCPU was kept from running for "+unit.Percent(share)+" of the window")
				return Judgement{Node: node, Element: "cpu", GainAtMost: 1 / max(1-share, .01),
					Terms: []Term{requires("capped", degree(share, .05, .3)).by(e), requires("full-core", 1),
						o.slowsDown()},
					Text: fmt.Sprintf("the %s's CPU is throttled for %s of the window", node,
						unit.Percent(share)), Facts: factList{e}}
			}
			at := node
			if o.Shared() {
				at = record.HostNode
			}
			limit, why := o.level(at, "cpufreq", "limit_hz")
			if why != "" {
				return missing(why)
			}
			hardware, why := o.level(at, "cpufreq", "hardware_limit_hz")
			if why != "" || hardware <= 0 {
				return missing(cmp.Or(why, "the clock limit is not known"))
			}
			s, why := o.systemAt(at)
			if why != "" {
				return missing(why)
			}
			lost, clock := 1-limit/hardware, unit.ScaleOf("Hz", limit).Text(limit)
			e := against(fact("limit_hz", at, "cpu", limit, "the clock limit is "+clock), hardware)
			return Judgement{Node: at, Element: "cpu", GainAtMost: hardware / math.Max(limit, 1),
				Terms: []Term{requires("capped", degree(lost, .03, .2)).by(e), s.full(),
					contradicts("slows-down", 0)},
				Text: fmt.Sprintf("%s CPU clock is capped at %s, %s below the hardware maximum", s.of(),
					clock, unit.Percent(lost)), Facts: factList{e, s.coreFact()}}
		}),
		Experiments: cpuDoses,
		Remedies: []Remedy{
			{System: "linux", Do: "let the CPU run at its maximum clock", Commands: []string{
				"for p in /sys/devices/system/cpu/cpufreq/policy*; do cat $p/cpuinfo_max_freq > " +
					"$p/scaling_max_freq; echo performance > $p/scaling_governor; done"},
				Risk: "more power and heat", Factor: "governor", Level: "performance"},
			{System: "linux", Do: "raise the CPU quota of the virtual machine or container",
				Risk: "less CPU for its neighbours", Factor: "cpu_quota", Level: "off"},
			{System: "openwrt", Do: "use the performance governor", Commands: []string{
				"echo performance > /sys/devices/system/cpu/cpufreq/policy0/scaling_governor"},
				Risk: "more heat; lost on reboot"},
			{System: "routeros", Do: "set the CPU frequency to its maximum", Commands: []string{
				"/system routerboard settings set cpu-frequency=auto"}, Risk: "more heat; needs a reboot, " +
				"and routerboard in the device-mode, which takes its button or a power cycle"},
			{System: "freebsd", Do: "stop powerd, or set it to hiadaptive", Commands: []string{
				"sysrc powerd_flags='-a hiadaptive'", "service powerd restart"}, Risk: "more power"},
		}}
}
