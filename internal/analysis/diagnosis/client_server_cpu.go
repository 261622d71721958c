package diagnosis

// threadUse returns the CPU time of an end's load generator as shares of the window: the share of its busiest
// thread, and the sum over all threads.
func (o *Observation) threadUse(node string) (busiest, all float64, ok bool) {
	for _, u := range o.Traffic.Ends {
		if u.Node != node {
			continue
		}

		for _, ns := range u.ThreadsNs {
			used := o.perSecond(float64(ns)) / 1e9
			busiest = max(busiest, used)
			all += used
			ok = true
		}
	}
	return busiest, all, ok
}

// endCPU returns the rule for an end, client or server, whose own CPU is saturated.
func endCPU(class, end string) Rule {
	return rule(class, "label: the "+end+"'s CPU is saturated\n"+`
		means: a load generator thread at this end runs for at least 90 % of the window, or a core \
			of a machine dedicated to this end is busy for 95 %
		traits: ends to-tester at-capacity
		any: use more streams, larger packets, or a faster machine at this end
		linux: offload work to the NIC
			$ ethtool -K DEV tso on gso on gro on
	`, func(o *Observation) Candidate {
		node, far := o.nearFar()
		if end == "server" {
			node = far
		}

		use, _, ok := o.threadUse(node)
		full := 0.0
		var found factList
		if ok {
			full = degree(use, .7, .95)
			found = factList{fact("threads_ns", node, "thread", use,
				"the busiest load generator thread used %h of a core")}
		}

		s, why := o.systemAt(node)
		if why == "" && o.Run.Node(node).OwnMachine() {
			full = max(full, degree(s.Full.Busy, .8, .97))
			found = append(found, s.coreFact())
		}

		needs(len(found) > 0, "the CPU time of the "+node+" was not read")
		return place{node, "cpu"}.candidate(requires("full", full).by(found[0])).
			facts(found...).
			text("the %s's CPU is saturated: its busiest thread used %h of a core", node, use)
	}, streamSteps(1, "more connections run in more threads, on other cores"))
}
