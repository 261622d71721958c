package diagnosis

// Classes of limits that other packages name.
const (
	Unknown = "unknown" // no rule: the answer where none fits
	Healthy = "healthy"
	Tester  = "tester-limited"
)

// Rules lists every class in the order of the reference.
func Rules() []Rule {
	return []Rule{
		healthy, testerLimited, linkRate, shaper, policer, endCPU(ClientCPU, "client"),
		endCPU(ServerCPU, "server"), slowSender, slowReader, sendBuffer, receiveWindow, smallQueue,
		bufferbloat, randomLoss, ruleDrop, reordering, reversePath, checksumErrors, replayWindow,
		tcpInTCP, fragmentation, pmtuBlackHole, optionsStripped, smallSegments, conntrackInvalid,
		crossTraffic, shaperBurst, shaperCPU, softirqOneCore, softirqAllCores, vpnProcess,
		cryptoWorkers, ruleList, logFlood, otherLoad, clockDown, thermal, conntrackFull, connectionRate,
		wireguardQueue, oneTunnelOneCore, backlogBudget, offloadLost, groPathology, linkLayer,
		pcieMemory, tunnelBypassed, sharedCPU, oneFlow, inlineInspection, unstable,
	}
}

// RuleOf finds a rule by its class.
func RuleOf(class string) (found Rule, ok bool) {
	for _, r := range Rules() {
		if r.Class == class {
			found, ok = r, true
		}
	}
	return found, ok
}

// LabelOf returns the label of a class for a sentence.
func LabelOf(class string) string {
	if r, ok := RuleOf(class); ok {
		return r.Label
	}
	return notKnown
}
