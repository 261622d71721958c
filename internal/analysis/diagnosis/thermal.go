package diagnosis

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// leastFall is the window in seconds in which a fall can be told from chance.
const leastFall = 3.0

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
			if o.Trial.Window.Seconds() < leastFall {
				return missing("the window is too short to see a fall: it needs three seconds")
			}
			if share, ok := o.throttled(node, 0, 1); ok {
				late, _ := o.throttled(node, .66, 1)
				share = max(share, late)
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
