package diagnosis

import "sync"

// Rules returns the rule of every class in the order of the reference.
func Rules() []Rule { return rules() }

var rules = sync.OnceValue(allRules)

func allRules() []Rule {
	all := []Rule{
		healthy, testerLimited, linkRate, shaper, policer, endCPU(ClientCPU, "client"),
		endCPU(ServerCPU, "server"), slowSender, slowReader, sendBuffer, receiveWindow, smallQueue,
		bufferbloat, randomLoss, ruleDrop, reordering, reversePath, checksumErrors, replayWindow,
		tcpInTCP, fragmentation, pmtuBlackHole, optionsStripped, smallSegments, conntrackInvalid,
		crossTraffic, shaperBurst, shaperCPU, softirqOneCore, softirqAllCores, vpnProcess,
		cryptoWorkers, ruleList, logFlood, otherLoad, clockDown, thermal, conntrackFull, connectionRate,
		wireguardQueue, oneTunnelOneCore, backlogBudget, offloadLost, groPathology, linkLayer,
		pcieMemory, tunnelBypassed, sharedCPU, oneFlow, inlineInspection, unstable,
	}
	for i, r := range all {
		all[i].Words = words(r.Text)
	}
	return all
}

// RuleOf returns the rule of a class. ok is false if there is none.
func RuleOf(class string) (r Rule, ok bool) {
	for _, r := range Rules() {
		if r.Class == class {
			return r, true
		}
	}
	return r, false
}

// LabelOf returns the label of a class, or notKnown if there is no such class.
func LabelOf(class string) string {
	if r, ok := RuleOf(class); ok {
		return r.Label
	}
	return notKnown
}
