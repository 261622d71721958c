package diagnosis

import (
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// minFallWindow is the shortest window, in seconds, in which a falling rate can be distinguished from chance.
const minFallWindow = 3.0

// thermal describes a CPU that becomes slower during the trial.
var thermal = rule(Thermal, `
	label: the router's CPU slows down over time
	means: the kernel reports thermal throttling; or a quota throttles a vCPU, and goodput \
		falls by 45 % from the first third of a window of at least three seconds to the last
	explains: busy-cores
	kind: packet
	planted: cpu_tightening
	any: improve the cooling: remove dust, add a fan, keep it away from heat sources
		risk: none
	linux: cap the clock one step lower, where it can stay
		$ echo FREQ > /sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq
		risk: slower at first, steadier over time
`, func(o *Observation) Candidate {
	node := tested(o)
	at := place{node, "cpu"}
	for _, r := range o.Reasons {
		if r.Kind == evidence.ReasonThrottled {
			return at.candidate(requires("throttled", 1)).
				facts(r.Facts...).
				text("the CPU was throttled: %s", r.Text)
		}
	}

	needs(o.Window.Seconds() >= minFallWindow,
		"the window is too short to show a decline: it must be at least three seconds")
	if share, ok := o.throttled(node, 0); ok {
		late, _ := o.throttled(node, .66)
		share = max(share, late)
		fell := o.fell()
		return at.candidate(requires("throttled", share, .05, .3).by(throttledFact(node, share)),
			requires("falls", fell, .2, .45).by(
				seen(metrics.Goodput, fell,
					"%h less arrived in the last third of the window than in the first"))).
			gain(1/(1-min(fell, .99))).
			text("the %s's CPU slows down over time: goodput falls by %h within the window", node, fell)
	}

	if o.Shared() {
		at.Node = record.HostNode
	}

	_, why := o.Columns(at.Node, "thermal", "core_throttles")
	_, second := o.Columns(at.Node, "thermal", "cooling_state")
	needs(why == "" || second == "", why)
	return candidate(requires("throttled", 0).by(
		at.fact("core_throttles", 0, "no core or cooling device reported thermal throttling")))
})
