package diagnosis

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// backlogBudget returns the rule for packet work that a kernel limit cuts off while the CPU has time.
func backlogBudget() Rule {
	return Rule{Class: BacklogBudget, Wasteful: true,
		Label: "the kernel's packet backlog or NAPI budget is too small",
		Means: "a core's backlog dropped at least 0.3 % of its packets (netdev_max_backlog); or a core ran " +
			"out of budget at least once every 30 packets (netdev_budget), where 300 is usual",
		Judge: given((*Observation).systemOf, func(o *Observation, s system) Judgement {
			sum := func(stem string) (float64, bool) {
				return o.Sum(s.Node, "softnet", stem, func(label string) bool { return len(label) > 3 })
			}
			processed, ok := sum("processed")
			if !ok {
				_, why := o.Columns(s.Node, "softnet", "processed")
				return missing(cmp.Or(why, "the samples of probe softnet do not cover the window"))
			}
			dropped, _ := sum("dropped")
			squeezed, budgeted := sum("time_squeeze")
			lost, cut := ratio(dropped, processed+dropped), ratio(squeezed, processed)
			drops, budget := degree(lost, .0005, .003), degree(cut, 1./120, 1./30)
			facts := factList{fact("dropped", s.Node, "backlog", dropped,
				fmt.Sprintf("the backlogs dropped %.0f of %.0f packets", dropped, processed+dropped))}
			if budgeted {
				facts = append(facts, fact("time_squeeze", s.Node, "budget", squeezed, fmt.Sprintf(
					"the budget ran out %.0f times with packets left to process", squeezed)))
			}
			j := Judgement{Node: s.Node, Element: "backlog", Facts: facts,
				Text: fmt.Sprintf("%s packet backlog is too short: it dropped %s of the packets", s.of(),
					unit.Percent(lost))}
			if budget > drops {
				slices.Reverse(facts)
				j.Element = "budget"
				j.Text = fmt.Sprintf("%s packet processing runs out of budget every %.0f packets", s.of(),
					1/cut)
			}
			j.Terms = []Term{requires("drops-or-squeezes", max(drops, budget)).by(facts[0])}
			return j
		}),
		Remedies: []Remedy{
			{System: "linux", Do: "lengthen the backlog",
				Commands: []string{"sysctl -w net.core.netdev_max_backlog=4000"},
				Risk:     "more latency while a core stays saturated",
				Factor:   "sysctl:net.core.netdev_max_backlog", Level: "4000"},
			{System: "linux", Do: "raise the budget",
				Commands: []string{"sysctl -w net.core.netdev_budget=600"},
				Risk:     "other work on the core waits longer", Factor: "sysctl:net.core.netdev_budget",
				Level: "600"},
			{System: "freebsd", Do: "lengthen the netisr queue", Commands: []string{
				"echo net.isr.defaultqlimit=2048 >> /boot/loader.conf"}, Risk: "more latency"},
		}}
}
