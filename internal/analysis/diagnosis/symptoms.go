package diagnosis

import "slices"

// atCapacity lists the classes in which a CPU can do no more, belowCapacity those in which a load is held
// below the CPUs' capacity: if one of the latter is present, a full CPU is not the reason.
var (
	atCapacity = []string{SoftirqOneCore, SoftirqAllCores, VPNProcess, CryptoWorkers, OtherLoad, SharedCPU,
		OneTunnel, ClientCPU, ServerCPU, Tester}
	belowCapacity = []string{LinkRate, Shaper, Policer, SlowSender, SlowReader, SendBuffer, ReceiveWindow,
		Fragmentation, ReversePath}
)

// atAnyRate lists the classes that also affect a load that gets all it asks for.
var atAnyRate = []string{Healthy, Tester, Bufferbloat, RandomLoss, Reordering, PMTUBlackHole, ConntrackFull,
	TunnelBypassed}

// inGuest lists the classes about full cores of a guest, which may be full because they are not allowed to
// run.
var inGuest = []string{SoftirqOneCore, SoftirqAllCores, VPNProcess, CryptoWorkers, SharedCPU}

// behindTester lists the classes in which the router is at its maximum: if the tester is at its own, that was
// not observed.
var behindTester = []string{SoftirqOneCore, SoftirqAllCores, VPNProcess, CryptoWorkers, RuleList, LogFlood,
	ClockDown, ConnectionRate, OneTunnel, BacklogBudget}

// symptoms lists classes that other classes explain: the latter cause the former, or leave less to them.
var symptoms = []struct{ of, classes []string }{
	{belowCapacity, atCapacity},
	{[]string{Tester}, behindTester},
	// The cost per packet fills cores.
	{[]string{RuleList, LogFlood, Thermal, ConnectionRate, SmallSegments, InlineInspection, ShaperCPU},
		[]string{SoftirqOneCore, SoftirqAllCores, SharedCPU, OneFlow, OtherLoad}},
	// A full core or process forwards all it can: congestion control, on which these steps act, is not the
	// limit. A process drops what does not fit into its socket buffer.
	{[]string{RuleList, ClockDown, VPNProcess}, []string{RandomLoss, Reordering}},
	{[]string{VPNProcess}, []string{WireguardQueue}},
	// A CPU does not have to move dropped packets.
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

// explainAway adds to each class the degree to which others explain it: that to which these are met.
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
