package diagnosis

import "slices"

// atCapacity lists the classes in which a CPU is saturated. belowCapacity lists the classes that hold a load
// below the capacity of the CPUs. If a class in belowCapacity applies, a saturated CPU is not the cause.
var (
	atCapacity = []string{SoftirqOneCore, SoftirqAllCores, VPNProcess, CryptoWorkers, OtherLoad, SharedCPU,
		OneTunnel, ClientCPU, ServerCPU, Tester}
	belowCapacity = []string{LinkRate, Shaper, Policer, SlowSender, SlowReader, SendBuffer, ReceiveWindow,
		Fragmentation, ReversePath}
)

// atAnyRate lists the classes that also affect a load that reaches its set rate.
var atAnyRate = []string{Healthy, Tester, Bufferbloat, RandomLoss, Reordering, PMTUBlackHole, ConntrackFull,
	TunnelBypassed}

// inGuest lists the classes for saturated cores of a guest. Such cores may only look saturated because the
// host does not let them run.
var inGuest = []string{SoftirqOneCore, SoftirqAllCores, VPNProcess, CryptoWorkers, SharedCPU}

// behindTester lists the classes in which the router is saturated. If the tester is saturated, the router's
// maximum was not reached.
var behindTester = []string{SoftirqOneCore, SoftirqAllCores, VPNProcess, CryptoWorkers, RuleList, LogFlood,
	ClockDown, ConnectionRate, OneTunnel, BacklogBudget}

// symptoms lists which classes explain others. In each entry, the field "of" holds the explaining classes,
// and the field "classes" the explained ones. A class explains another if it causes that class, or keeps it
// from being the limit.
var symptoms = []struct{ of, classes []string }{
	{belowCapacity, atCapacity},
	{[]string{Tester}, behindTester},
	// The cost per packet saturates cores.
	{[]string{RuleList, LogFlood, Thermal, ConnectionRate, SmallSegments, InlineInspection, ShaperCPU},
		[]string{SoftirqOneCore, SoftirqAllCores, SharedCPU, OneFlow, OtherLoad}},
	// A saturated core or process forwards as much as it can, so congestion control, on which loss and
	// reordering act, is not the limit. A process drops what does not fit into its socket buffer.
	{[]string{RuleList, ClockDown, VPNProcess}, []string{RandomLoss, Reordering}},
	{[]string{VPNProcess}, []string{WireguardQueue}},
	// Dropped packets cost no time on the CPUs behind the place where they are dropped.
	{[]string{RuleDrop, SmallQueue, ReplayWindow, TCPInTCP}, atCapacity},
}

// SymptomsOf returns the classes that a class explains.
func SymptomsOf(class string) (out []string) {
	for _, s := range symptoms {
		if slices.Contains(s.of, class) {
			out = append(out, s.classes...)
		}
	}
	return out
}

// explainAway adds a term to each class, with the degree to which other classes explain the class.
func explainAway(all []Candidate) {
	terms := make([]Term, len(all))
	for _, j := range all {
		if len(j.Terms) == 0 || len(j.Facts) == 0 {
			continue
		}

		classes := SymptomsOf(j.Class)
		starves := func(e Fact) bool { return e.Metric == guestRan }
		if j.Class == OtherLoad && slices.ContainsFunc(j.Facts, starves) {
			classes = append(classes, inGuest...)
		}

		share := met(j.Terms...)
		for i := range all {
			if share > terms[i].Met && slices.Contains(classes, all[i].Class) {
				terms[i] = contradicts(Explained, share).by(j.Facts[0])
			}
		}
	}

	for i, t := range terms {
		if len(all[i].Terms) > 0 && t.Met > 0 {
			all[i] = all[i].with(t)
		}
	}
}
