package diagnosis

import (
	"slices"
)

// Classes of the rules about the path and the ends.
const (
	LinkRate      = "link-rate"
	Shaper        = "shaper"
	Policer       = "policer"
	ClientCPU     = "client-cpu"
	ServerCPU     = "server-cpu"
	SlowSender    = "slow-sender"
	SlowReader    = "slow-reader"
	SendBuffer    = "send-buffer"
	ReceiveWindow = "receive-window"
	SmallQueue    = "small-queue"
	Bufferbloat   = "bufferbloat"
	RandomLoss    = "random-loss"
	Reordering    = "reordering"
	Fragmentation = "fragmentation"
	PMTUBlackHole = "pmtu-black-hole"
)

// pathRules are those about the path and the ends.
func pathRules() []Rule {
	return []Rule{linkRate(), shaper(), policer(), clientCPU(), serverCPU(), slowSender(), slowReader(),
		sendBuffer(), receiveWindow(), smallQueue(), bufferbloat(), randomLoss(), reordering(),
		fragmentation(),
		pmtuBlackHole()}
}

// atCapacity are the classes that say that a CPU moves no more, and belowCapacity those of a load that is
// held
// below what the CPUs could move: where one of these is seen to hold it, a full CPU is not why.
var (
	atCapacity = []string{SoftirqOneCore, SoftirqAllCores, VPNProcess, CryptoWorkers, OtherLoad, SharedCPU,
		OneTunnel, ClientCPU, ServerCPU, Tester}
	belowCapacity = []string{LinkRate, Shaper, Policer, SlowSender, SlowReader, SendBuffer, ReceiveWindow,
		Fragmentation}
)

// explainAway lowers the scores of full CPUs by what holds the load below them, and those of the router by
// the tester's own limit.
func explainAway(all []Judgement) {
	most := 0.0
	for _, j := range all {
		if j.NotExamined == "" && slices.Contains(belowCapacity, j.Class) {
			most = max(most, j.Score)
		}
	}
	for i := range all {
		if slices.Contains(atCapacity, all[i].Class) {
			all[i].Score -= ramp(most, 2, 4, 0, 3)
		}
	}
	for _, j := range all {
		if j.Class == Tester && j.Score > 0 {
			makeIncredible(all, behindTester, ramp(j.Score, 0, 2.5, 0, 5), j.Facts[0])
		}
	}
}
