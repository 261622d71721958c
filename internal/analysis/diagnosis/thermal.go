package diagnosis

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// minFallWindow is the shortest window in seconds in which a fall can be told from chance.
const minFallWindow = 3.0

// thermal returns the rule for a CPU that becomes slower during the trial.
func thermal() Rule {
	return Rule{Class: Thermal, Label: "the router's CPU slows down over time",
		Means: "the kernel reports thermal throttling; or a quota throttles a vCPU, and goodput falls by " +
			"45 % from the first third of a window of at least three seconds to the last",
		Judge: given((*Observation).tested, func(o *Observation, node string) Judgement {
			for _, r := range o.Reasons {
				if r.Kind == evidence.ReasonThrottled {
					return Judgement{Node: node, Element: "cpu", Facts: r.Facts,
						Terms: []Term{requires("throttled", 1), requires("falls", 1)},
						Text:  "the CPU was throttled: " + r.Text}
				}
			}
			if o.Trial.Window.Seconds() < minFallWindow {
				return missing("the window is too short to show a decline: it must be at least three seconds")
			}
			if share, ok := o.throttled(node, 0); ok {
				late, _ := o.throttled(node, .66)
				share = max(share, late)
				fell := o.fell()
				facts := factList{fact("guest_throttled_ns", node, "vcpu", share,
					"a vCPU was kept from running for "+unit.Percent(share)+" of the window"),
					fact(metrics.Goodput, "", "", fell, unit.Percent(fell)+" less arrived in the last third "+
						"of the window than in the first")}
				return Judgement{Node: node, Element: "cpu", Facts: facts,
					Terms: []Term{requires("throttled", degree(share, .05, .3)).by(facts[0]),
						requires("falls", degree(fell, .2, .45)).by(facts[1])},
					GainAtMost: ratio(1, 1-min(fell, .99)), Text: fmt.Sprintf("the %s's CPU slows down "+
						"over time: goodput falls by %s within the window", node, unit.Percent(fell))}
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
			none := fact("core_throttles", at, "cpu", 0,
				"no core or cooling device reported thermal throttling")
			return Judgement{Facts: factList{none}, Terms: []Term{requires("throttled", 0).by(none),
				requires("falls", 1)}}
		}),
		Experiments: cpuDoses,
		Remedies: []Remedy{
			{Do: "improve the cooling: remove dust, add a fan, keep it away from heat sources", Risk: "none"},
			{System: "linux", Do: "cap the clock one step lower, where it can stay", Commands: []string{
				"echo FREQ > /sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq"},
				Risk: "slower at first, steadier over time"},
		}}
}
