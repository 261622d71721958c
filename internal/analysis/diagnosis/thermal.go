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
	return Rule{Class: Thermal, Label: "the router's CPU slows down over time",
		Means: "the kernel reports thermal throttling; or a quota throttles a vCPU, and goodput falls by " +
			"45 % from the first third of a window of at least three seconds to the last",
		Judge: given((*Observation).tested, func(o *Observation, node string) Judgement {
			for _, r := range o.Reasons {
				if r.Kind == evidence.ReasonThrottled {
					return Judgement{Score: 4 + o.wants(), Node: node, Element: "cpu",
						Text: "the CPU was throttled: " + r.Text, Facts: r.Facts}
				}
			}
			if o.Trial.Window.Seconds() < leastFall {
				return missing("the window is too short to show a decline: it must be at least three seconds")
			}
			if share, ok := o.throttled(node, 0); ok {
				late, _ := o.throttled(node, .66)
				share = max(share, late)
				fell := o.fell()
				facts := factList{fact("guest_throttled_ns", node, "vcpu", share,
					"a vCPU waited for its quota for "+unit.Percent(share)+" of the window"),
					fact(metrics.Goodput, "", "", fell, unit.Percent(fell)+" less arrived in the last third "+
						"of the window than in the first")}
				return Judgement{Score: ramp(share, .05, .3, unlikely, 2) + ramp(fell, .2, .45, -5, 3) +
					o.wants(), Node: node, Element: "cpu", Facts: facts,
					GainAtMost: ratio(1, 1-min(fell, .99)),
					Text: fmt.Sprintf("the %s's CPU slows down over time: goodput falls by %s "+
						"within the window", node, unit.Percent(fell))}.weighed(ramp(share, .05, .3,
					unlikely, 0), ramp(fell, .2, .45, -5, 0))
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
			return Judgement{Score: unlikely, Facts: factList{fact("core_throttles", at, "cpu", 0,
				"no core or cooling device reported thermal throttling")}}.weighed(unlikely)
		}),
		Experiments: cpuDoses,
		Remedies: []Remedy{
			{Do: "improve the cooling: remove dust, add a fan, keep it away from heat sources", Risk: "none"},
			{System: "linux", Do: "cap the clock one step lower, where it can stay", Commands: []string{
				"echo FREQ > /sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq"},
				Risk: "slower at first, steadier over time"},
		}}
}
