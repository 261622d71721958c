package diagnosis

// backlogBudget describes packet processing that a kernel limit interrupts although the CPU has time left.
var backlogBudget = rule(BacklogBudget, `
	label: the kernel's packet backlog or NAPI budget is too small
	means: a core's backlog dropped at least 0.3 % of its packets (netdev_max_backlog); or a \
		core ran out of budget at least once every 30 packets (netdev_budget), where 300 is usual
	traits: wasteful in-router
	planted: backlog budget
	linux: lengthen the backlog
		$ sysctl -w net.core.netdev_max_backlog=4000
		risk: more latency while a core stays saturated
		plan: sysctl:net.core.netdev_max_backlog=4000
	linux: raise the budget
		$ sysctl -w net.core.netdev_budget=600
		risk: other work on the core waits longer
		plan: sysctl:net.core.netdev_budget=600
	freebsd: lengthen the netisr queue
		$ echo net.isr.defaultqlimit=2048 >> /boot/loader.conf
		risk: more latency
`, func(o *Observation) Candidate {
	s := need(systemOf(o))
	sum := func(stem string) (float64, string) {
		return o.sumOf(s.Node, "softnet", func(label string) bool { return len(label) > 3 }, stem)
	}
	processed := need(sum("processed"))
	dropped, _ := sum("dropped")
	squeezed, _ := sum("time_squeeze")
	lost := ratio(dropped, processed+dropped)
	cut := ratio(squeezed, processed)
	drops := degree(lost, .0005, .003)
	budget := degree(cut, 1./120, 1./30)
	at := place{s.Node, "backlog"}
	if budget > drops {
		at.Element = "budget"
		return at.candidate(requires("drops-or-squeezes", budget).by(
			at.fact("time_squeeze", squeezed,
				"the budget ran out %.0f times with packets left to process"))).
			text("%s packet processing runs out of budget every %.0f packets", s.of(), 1/cut)
	}

	return at.candidate(requires("drops-or-squeezes", drops).by(
		at.fact("dropped", dropped, "the backlogs dropped %.0f of %.0f packets", dropped,
			processed+dropped))).
		text("%s packet backlog is too short: it dropped %h of the packets", s.of(), lost)
})
