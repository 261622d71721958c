package diagnosis

import (
	"cmp"
	"fmt"
	"math"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// clockDown is a CPU that is slower than it could be: held at a lower clock, or given a part of its time.
func clockDown() Rule {
	return Rule{Class: ClockDown, Label: "the router's CPU is held below its speed",
		Means: "the clock's limit is a fifth or more below what the hardware has while a core is full; or " +
			"a quota took 30 % of a virtual CPU's window",
		Judge: func(o *Observation) Judgement {
			node, why := o.tested()
			if why != "" {
				return missing(why)
			}
			if share, ok := o.throttled(node, 0, 1); ok {
				score := ramp(share, .05, .3, unlikely, 4.5) + o.wants() - o.tightened()
				return Judgement{Score: score, Node: node, Element: "cpu", GainAtMost: 1 / max(1-share, .01),
					Text: fmt.Sprintf("the %s's CPU is held down: a quota took %s of its time", node,
						unit.Percent(share)),
					Facts: []evidence.Evidence{fact("guest_throttled_ns", node, "vcpu", share,
						"a virtual CPU waited for its quota for "+unit.Percent(share)+" of the window")}}
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
				return missing(cmp.Or(why, "the clock's limit is not known"))
			}
			s, why := o.systemAt(at)
			if why != "" {
				return missing(why)
			}
			lost := 1 - limit/hardware
			return Judgement{Score: ramp(lost, .03, .2, unlikely, 2.5) + ramp(s.Full.Busy, .7, .93, -4, 1) +
				o.wants(), Node: at, Element: "cpu", GainAtMost: hardware / math.Max(limit, 1),
				Text: fmt.Sprintf("%s clock is held at %s, %s below what it has", s.of(),
					unit.ScaleOf("Hz", limit).Text(limit), unit.Percent(lost)),
				Facts: []evidence.Evidence{against(fact("limit_hz", at, "cpu", limit,
					"the clock may reach "+unit.ScaleOf("Hz", limit).Text(limit)), hardware), s.coreFact()}}
		},
		Experiments: cpuDoses,
		Remedies: []Remedy{
			{System: "linux", Do: "let the clock run at its highest while it is needed", Commands: []string{
				"for p in /sys/devices/system/cpu/cpufreq/policy*; do cat $p/cpuinfo_max_freq > " +
					"$p/scaling_max_freq; echo performance > $p/scaling_governor; done"},
				Risk: "more power and heat"},
			{System: "linux", Do: "raise the quota of the virtual machine or container",
				Risk: "its neighbours get less", Factor: "cpu_quota", Level: "off"},
			{System: "openwrt", Do: "use the governor performance", Commands: []string{
				"echo performance > /sys/devices/system/cpu/cpufreq/policy0/scaling_governor"},
				Risk: "more heat; lost on reboot"},
			{System: "routeros", Do: "set the CPU's frequency to its highest", Commands: []string{
				"/system routerboard settings set cpu-frequency=auto"}, Risk: "more heat; needs a reboot"},
			{System: "freebsd", Do: "stop powerd, or set it to hiadaptive", Commands: []string{
				"sysrc powerd_flags='-a hiadaptive'", "service powerd restart"}, Risk: "more power"},
		}}
}

// heldDown is what speaks against a full core as the cause: its quota is.
func (o *Observation) heldDown(node string) float64 {
	share, _ := o.throttled(node, 0, 1)
	return ramp(share, .05, .3, 0, 3.5)
}

// tested is the first router, or of several the one whose CPU was held back most.
func (o *Observation) tested() (string, string) {
	routers := o.Routers()
	if len(routers) == 0 {
		return "", "the topology names no router"
	}
	best, most := routers[0], -1.0
	for _, node := range routers {
		if share, ok := o.throttled(node, 0, 1); ok && share > most {
			best, most = node, share
		}
	}
	return best, ""
}

// tightened is what speaks for a CPU that became slower within the window, and so against one that is slow.
func (o *Observation) tightened() float64 {
	return ramp(o.fell(), .28, .45, 0, 4)
}

// fell is how much less arrived in the window's last third than in its first: 0.5 = half as much.
func (o *Observation) fell() float64 {
	early, late := 0.0, 0.0
	for i := range o.Trial.Traffic.Flows {
		f := &o.Trial.Traffic.Flows[i]
		bytes := f.Received.Column("bytes")
		if len(bytes) == 0 {
			continue
		}
		c := Column{curve: statistics.NewCurve(f.Received.T, bytes), w: o.Trial.Window}
		a, ok1 := c.GrewIn(0, .34)
		b, ok2 := c.GrewIn(.66, 1)
		if ok1 && ok2 {
			early, late = early+a, late+b
		}
	}
	if early <= 0 {
		return 0
	}
	return 1 - late/early
}

// thermal is a CPU that becomes slower as it goes on.
func thermal() Rule {
	return Rule{Class: Thermal, Label: "the router's CPU becomes slower over time",
		Means: "the kernel says that heat held the CPU back; or a quota holds a virtual CPU back, and " +
			"goodput falls by 45 % from the window's first third to its last",
		Judge: func(o *Observation) Judgement {
			node, why := o.tested()
			if why != "" {
				return missing(why)
			}
			for _, r := range o.Reasons {
				if r.Kind == evidence.ReasonThrottled {
					return Judgement{Score: 4 + o.wants(), Node: node, Element: "cpu",
						Text: "the CPU was throttled: " + r.Text, Facts: r.Facts}
				}
			}
			if share, ok := o.throttled(node, 0, 1); ok {
				fell := o.fell()
				facts := []evidence.Evidence{fact("guest_throttled_ns", node, "vcpu", share,
					"a virtual CPU waited for its quota for "+unit.Percent(share)+" of the window"),
					fact(metrics.Goodput, "", "", fell, unit.Percent(fell)+" less arrived in the window's "+
						"last third than in its first")}
				return Judgement{Score: ramp(share, .05, .3, unlikely, 2) + ramp(fell, .2, .45, -5, 3) +
					o.wants(), Node: node, Element: "cpu", Facts: facts,
					GainAtMost: ratio(1, 1-min(fell, .99)),
					Text: fmt.Sprintf("the %s's CPU becomes slower as it goes on: goodput falls by %s "+
						"within the window", node, unit.Percent(fell))}
			}
			at := node
			if o.Shared() {
				at = record.HostNode
			}
			if _, why := o.Columns(at, "thermal", "core_throttles"); why != "" {
				if _, second := o.Columns(at, "thermal", "cooling_state"); second != "" {
					return missing(why)
				}
			}
			return Judgement{Score: unlikely, Facts: []evidence.Evidence{fact("core_throttles", at, "cpu", 0,
				"no core and no cooling device said that heat held it back")}}
		},
		Experiments: cpuDoses,
		Remedies: []Remedy{
			{Do: "improve the cooling: remove dust, add a fan, keep it away from other heat", Risk: "none"},
			{System: "linux", Do: "hold the clock a step lower, so that it stays there", Commands: []string{
				"echo FREQ > /sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq"},
				Risk: "slower at first, steadier over time"},
		}}
}
