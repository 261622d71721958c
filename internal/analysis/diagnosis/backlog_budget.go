package diagnosis

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// backlogBudget is packet work that the kernel cuts off by a limit while the CPU has time.
func backlogBudget() Rule {
	return Rule{Class: BacklogBudget, Label: "the kernel's backlog or budget of packets is too small",
		Means: "a core's backlog dropped three packets in a thousand or more (netdev_max_backlog); or a " +
			"core left work behind once for 30 packets or fewer (netdev_budget), where 300 are usual",
		Judge: func(o *Observation) Judgement {
			s, why := o.systemOf()
			if why != "" {
				return missing(why)
			}
			sum := func(stem string) (float64, bool) {
				return o.Sum(s.Node, "softnet", stem, func(label string) bool { return len(label) > 3 })
			}
			processed, ok := sum("processed")
			if !ok {
				_, why := o.Columns(s.Node, "softnet", "processed")
				return missing(cmp.Or(why, "the samples of probe softnet do not cover the window"))
			}
			dropped, _ := sum("dropped")
			squeezed, _ := sum("time_squeeze")
			lost, cut := ratio(dropped, processed+dropped), ratio(squeezed, processed)
			drops := ramp(lost, .0005, .003, -5, 4)
			budget := ramp(cut, 1./120, 1./30, -5, 4)
			facts := []evidence.Evidence{fact("dropped", s.Node, "backlog", dropped,
				fmt.Sprintf("the backlogs dropped %.0f of %.0f packets", dropped, processed+dropped)),
				fact("time_squeeze", s.Node, "budget", squeezed, fmt.Sprintf("%.0f times work was left "+
					"behind because its budget was spent", squeezed))}
			j := Judgement{Score: drops, Node: s.Node, Element: "backlog", Facts: facts,
				Text: fmt.Sprintf("%s backlog is too short: %s of the packets were dropped there", s.of(),
					unit.Percent(lost))}
			if budget > drops {
				slices.Reverse(facts)
				j.Score, j.Element = budget, "budget"
				j.Text = fmt.Sprintf("%s packet work is cut off by its budget once in %.0f packets", s.of(),
					1/cut)
			}
			j.Score += o.wants()
			return j
		},
		Experiments: func(_ *Observation, j Judgement) []Experiment {
			name := "sysctl:net.core.netdev_max_backlog"
			if j.Element == "budget" {
				name = "sysctl:net.core.netdev_budget"
			}
			return []Experiment{{Class: j.Class, Factor: "streams", Doses: []string{"1", "2", "4"},
				From: "tester",
				Why:  "fewer flows send fewer packets at once, and fill a backlog less"},
				{Class: j.Class, Factor: name, Doses: []string{"300", "1000", "4000"}, From: "router",
					Why: "with a larger one, drops and squeezes end"}}
		},
		Remedies: []Remedy{
			{System: "linux", Do: "a longer backlog",
				Commands: []string{"sysctl -w net.core.netdev_max_backlog=4000"},
				Risk:     "latency where a core is full for long",
				Factor:   "sysctl:net.core.netdev_max_backlog", Level: "4000"},
			{System: "linux", Do: "a larger budget",
				Commands: []string{"sysctl -w net.core.netdev_budget=600"},
				Risk:     "other work of the core waits longer", Factor: "sysctl:net.core.netdev_budget",
				Level: "600"},
			{System: "freebsd", Do: "a longer queue of netisr", Commands: []string{
				"echo net.isr.defaultqlimit=2048 >> /boot/loader.conf"}, Risk: "latency"},
		}}
}
