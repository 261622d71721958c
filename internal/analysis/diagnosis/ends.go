package diagnosis

import (
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
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
	RuleDrop      = "rule-drop"
	Reordering    = "reordering"
	ReversePath   = "reverse-path"

	OptionsStripped  = "options-stripped"
	SmallSegments    = "small-segments"
	ConntrackInvalid = "conntrack-invalid"
	CrossTraffic     = "cross-traffic"
	ShaperBurst      = "shaper-burst"
	ShaperCPU        = "shaper-cpu"

	ChecksumErrors = "checksum-errors"
	Fragmentation  = "fragmentation"
	PMTUBlackHole  = "pmtu-black-hole"
)

// pathRules are those about the path and the ends.
func pathRules() []Rule {
	return []Rule{linkRate(), shaper(), policer(), endCPU(ClientCPU, "client"),
		endCPU(ServerCPU, "server"), slowSender(), slowReader(),
		sendBuffer(), receiveWindow(), smallQueue(), bufferbloat(), randomLoss(), ruleDrop(),
		reordering(), reversePath(), checksumErrors(), fragmentation(), pmtuBlackHole(),
		optionsStripped(), smallSegments(), conntrackInvalid(), crossTraffic(), shaperBurst(), shaperCPU()}
}

// atCapacity are the classes that say that a CPU moves no more, and belowCapacity those of a load that is
// held below what the CPUs could move: where one of these is seen to hold it, a full CPU is not why.
var (
	atCapacity = []string{SoftirqOneCore, SoftirqAllCores, VPNProcess, CryptoWorkers, OtherLoad, SharedCPU,
		OneTunnel, ClientCPU, ServerCPU, Tester}
	belowCapacity = []string{LinkRate, Shaper, Policer, SlowSender, SlowReader, SendBuffer, ReceiveWindow,
		Fragmentation, ReversePath}
)

// inGuest are those of a guest's full cores, which may be full for want of time to run.
var inGuest = []string{SoftirqOneCore, SoftirqAllCores, VPNProcess, CryptoWorkers, SharedCPU}

// symptoms are classes that a cause brings with it, or that it leaves less to: what fills a core in softirqs
// is that full core's cause, comes before all processes, and what a quota took no process can take.
var symptoms = []struct {
	of      string
	classes []string
	by      float64
}{
	{RuleList, []string{SoftirqOneCore, SoftirqAllCores}, 3},
	{LogFlood, []string{SoftirqOneCore, SoftirqAllCores}, 3},
	{RuleList, []string{OtherLoad}, 1.5},
	{ClockDown, []string{OtherLoad}, 1.5},
	// A full core forwards all that it can: congestion control, on which these act, is not what limits.
	{RuleList, []string{RandomLoss, Reordering}, 2.5},
	{ClockDown, []string{RandomLoss, Reordering}, 2.5},
	// So does a process that is full, and it loses what does not fit into its socket's buffer.
	{VPNProcess, []string{RandomLoss}, 2.5},
	// A queue that is full drops, and does not choose.
	{BacklogBudget, []string{RandomLoss}, 2},
	{WireguardQueue, []string{RandomLoss}, 3},
	// A core that slows down, or that opens connections, is full.
	{Thermal, []string{SoftirqOneCore, SoftirqAllCores}, 2},
	{ConnectionRate, []string{SoftirqOneCore, SoftirqAllCores}, 1.5},
	// Where acknowledgements wait, round trips are long, and data leaves in bursts.
	{ReversePath, []string{Bufferbloat, Unstable, ReceiveWindow, SlowReader, SlowSender, PMTUBlackHole}, 6},
	// Without the option a window cannot be large, whatever the buffer.
	{OptionsStripped, []string{ReceiveWindow, SlowReader}, 5},
	{SmallSegments, []string{SoftirqOneCore, SoftirqAllCores, SharedCPU, OneFlow}, 4},
	{InlineInspection, []string{SoftirqOneCore, SoftirqAllCores, OtherLoad, LogFlood}, 3},
	{ConntrackInvalid, []string{RuleDrop, RandomLoss, Reordering}, 5},
	{CrossTraffic, []string{Shaper, LinkRate, Bufferbloat}, 4},
	{ShaperBurst, []string{Shaper, LinkRate, SmallQueue, Bufferbloat}, 4},
	{ShaperCPU, []string{Shaper, LinkRate, SmallQueue, Bufferbloat, SoftirqOneCore, SoftirqAllCores}, 4},
	// What is damaged is dropped, at the receiver.
	{ChecksumErrors, []string{RandomLoss, RuleDrop, Policer}, 4},
	// What dies inside a router is not lost on the path, and what follows it arrives out of order.
	{RuleDrop, []string{RandomLoss, Reordering}, 3},
	// What a rule of the sender's own takes looks to TCP as if its device were busy: it sends less.
	{RuleDrop, []string{SlowSender, SlowReader}, 8},
	// A guest that works for others keeps its machine busy, too.
	{OtherLoad, []string{SharedCPU}, 3},
	// While nothing gets through an application waits, too.
	{Unstable, []string{SlowSender, SlowReader}, 4},
}

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
	for _, s := range symptoms {
		for _, j := range all {
			if j.Class == s.of && j.Score > 0 {
				makeIncredible(all, s.classes, ramp(j.Score, 1, 3, 0, s.by), j.Facts[0])
			}
		}
	}
	for _, j := range all {
		switch {
		case !(j.Score > 0):
		case j.Class == OtherLoad:
			i := slices.IndexFunc(j.Facts, func(e evidence.Evidence) bool { return e.Metric == guestRan })
			if i >= 0 {
				makeIncredible(all, inGuest, ramp(j.Score, 0, 2, 0, 6), j.Facts[i])
			}
		case j.Class == Tester:
			makeIncredible(all, behindTester, ramp(j.Score, 0, 2.5, 0, 5), j.Facts[0])
		case j.Class == RuleDrop || j.Class == SmallQueue: // what is dropped there, a CPU need not move
			makeIncredible(all, atCapacity, ramp(j.Score, 0, 1, 0, 6), j.Facts[0])
		}
	}
	leaveToCauses(all)
}
