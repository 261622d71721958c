package evidence

import (
	"cmp"
	"slices"
)

// Classes of kinds.
const (
	ClassReason  = "reason"  // reason to doubt a trial or cell; makes it suspect
	ClassCaveat  = "caveat"  // limitation of a number; does not make it suspect
	ClassFinding = "finding" // conclusion from the numbers
)

// Values of Kind.Of: what a kind applies to.
const (
	OfTrial = "trial"
	OfCell  = "cell"
	OfRun   = "run"
)

// Kind declares one kind of reason, caveat or finding.
type Kind struct {
	Name      string // stable identifier in the JSON document
	Class, Of string
	Short     string // what happened, in a few words; set for kinds that apply to trials or cells
	Means     string // explanation; for a reason, the conditions under which it is given
	Do        string // advice for the user; "" if there is none
	// Chance marks a reason that may also arise by chance. It makes a cell suspect only if it affects at
	// least a quarter of the cell's trials, because fewer do not change the median.
	Chance  bool
	Content bool // a verifying trial passes the reason on to the cells of its path
}

// Reasons to doubt a trial or cell.
const (
	ReasonTesterLimited  = "tester-limited"
	ReasonNotInTunnel    = "not-in-tunnel"
	ReasonAboveCeiling   = "above-ceiling"
	ReasonThrottled      = "throttled"
	ReasonBackgroundLoad = "background-load"
	ReasonSamplerStalled = "sampler-stalled"
	ReasonKernelLog      = "kernel-log-error"
	ReasonLinkFlap       = "link-flap"
	ReasonWrongMTU       = "wrong-path-mtu"
	ReasonCorrupt        = "corrupt-content"
	ReasonAccounting     = "accounting"
	ReasonDrift          = "drift"
	ReasonFailedTrials   = "failed-trials"
	ReasonRunEnded       = "run-ended"
	ReasonLateProbe      = "late-probe"
	ReasonLateEdge       = "late-edge"
	ReasonNothingArrived = "nothing-arrived"
	ReasonEngineStalled  = "engine-stalled"
)

// Findings about the delay that a load adds, and about the parts of the path that add it.
const (
	FindingBufferbloat = "bufferbloat"
	FindingSegments    = "latency-segments"
)

// Kinds returns all declared kinds: reasons in the order of the gate, then caveats and findings by name.
// docs/reference/reasons.md is generated from it, and a test ensures that the code uses no other kind.
func Kinds() []Kind { return slices.Concat(reasons(), caveats(), findings()) }

// KindOf returns the declaration of the named kind. For a name written by a newer version, only Name is set.
func KindOf(name string) Kind {
	for _, k := range Kinds() {
		if k.Name == name {
			return k
		}
	}
	return Kind{Name: name}
}

// Words returns a description of the kind, or the name of an unknown kind.
func (k Kind) Words() string { return cmp.Or(k.Short, k.Means, k.Name) }

func reasons() []Kind {
	all := []Kind{
		{
			Name:  ReasonTesterLimited,
			Short: "the tester was the limit",
			Of:    OfTrial,
			Means: "the tester was the limit. One of these: more than 1 % of the requested packets could " +
				"not be sent; more than 1 % of the packets sent were lost in the receiver's socket " +
				"buffers; after a delay, the sender sent more at once than a policer's bucket holds, and " +
				"packets were lost although the policer allows the rate; on a machine that only " +
				"generates load, a thread or a core was busy for 98 % of the window; if tester and " +
				"router have separate CPUs, the tester without the router is less than 1.2 times as fast",
			Do: "use a lower rate, more streams or a faster tester: the path may carry more",
		},
		{
			Name:    ReasonNotInTunnel,
			Short:   "the traffic bypassed the path",
			Of:      OfTrial,
			Content: true,
			Means: "the counters of the tunnel's devices or of the router, in the direction of the data, " +
				"did not increase, show less than 90 % of the window's payload between the window's " +
				"start and the load's end, or show less than 80 % of the window's payload over the whole " +
				"load; or no counter shows that the traffic took the path",
			Do: "look for a second route between the endpoints that bypasses the tunnel or the router",
		},
		{
			Name:    ReasonWrongMTU,
			Short:   "the path MTU is another than the one that was set",
			Of:      OfTrial,
			Content: true,
			Means: "the path MTU differs from the one that the factors imply, or TCP's segments had " +
				"become smaller by the window's end",
			Do: "set the MTU of the link or tunnel and the factor to the same value",
		},
		{
			Name:  ReasonAboveCeiling,
			Short: "more arrived than the path can carry",
			Of:    OfTrial,
			Means: "more than 100.5 % of the ceiling arrived",
			Do:    "check that the shaper is on the path and that the stated link rate is right",
		},
		{
			Name:    ReasonAccounting,
			Short:   "the counts of packets do not add up",
			Of:      OfTrial,
			Content: true,
			Means:   "sent ≠ received + lost for a stream, or a stream or flow is missing",
			Do:      "repeat the run; if it happens again, report it as a bug in the load generator",
		},
		{
			Name:  ReasonNothingArrived,
			Short: "nothing arrived",
			Of:    OfTrial,
			Means: "no payload arrived in the window, or none through one of several tunnels",
			Do: "find out what drops the payload; a path that carries nothing under this load looks the " +
				"same as a broken path",
		},
		{
			Name:    ReasonCorrupt,
			Short:   "data arrived changed",
			Of:      OfTrial,
			Content: true,
			Means: "received bytes differ from those that were sent, or content that should have been " +
				"checked was not",
			Do: "test the memory, and the network cards and their offloads: something on the path " +
				"changes data",
		},
		{
			Name:  ReasonThrottled,
			Short: "heat or a power limit slowed a CPU",
			Of:    OfTrial,
			Means: "a core's clock or a cooling device shows that heat or a power limit slowed the " +
				"machine down in the window",
			Do: "cool the machine, or warm up and measure for longer, to get its sustained rate",
		},
		{
			Name:   ReasonBackgroundLoad,
			Short:  "other programs used the CPU",
			Of:     OfTrial,
			Chance: true,
			Means: "processes outside the lab used more than 10 % of one core, or a hypervisor took more " +
				"than 5 % of all CPU time",
			Do: "stop the other programs, and repeat",
		},
		{
			Name:   ReasonSamplerStalled,
			Short:  "the sampling of counters was interrupted",
			Of:     OfTrial,
			Chance: true,
			Means: "the 10 Hz sampler was late by a second or more in the window, a second or more of " +
				"samples is missing, or afterwards the node's clock was behind by as much",
			Do: "the node had no CPU time for the sampler: do not rely on its CPU figures",
		},
		{
			Name:   ReasonEngineStalled,
			Short:  "the load generator was interrupted",
			Of:     OfTrial,
			Chance: true,
			Means:  "the load generator at one end recorded no counts for a second or more of the window",
			Do:     "stop other work on that machine, and repeat",
		},
		{
			Name:  ReasonKernelLog,
			Short: "the kernel logged an error",
			Of:    OfTrial,
			Means: "the kernel logged an error during the trial",
			Do:    "read the logged line; repeat the run once the cause is removed",
		},
		{
			Name:  ReasonLinkFlap,
			Short: "a link went down",
			Of:    OfTrial,
			Means: "a link went down and up",
			Do:    "check cables, ports and drivers",
		},
		{
			Name:   ReasonDrift,
			Short:  "the rate changed during the window",
			Of:     OfTrial,
			Chance: true,
			Means: "the rate in the last third of the window differs from the first third by 10 % or " +
				"more, and by more than chance (Mann–Whitney, p ≤ 0.0025)",
			Do: "warm up longer, or measure longer",
		},
		{
			Name:   ReasonLateProbe,
			Short:  "latency probes were sent late",
			Of:     OfTrial,
			Chance: true,
			Means: "the latency probe sent at least 1 % of its packets too late (by 5 ms with user " +
				"timestamps; by 20 ms or its interval, whichever is longer, with kernel timestamps), or " +
				"skipped a fifth of them",
			Do: "the tester had no CPU time for the probe, so the latency is less exact: stop other work " +
				"on that machine",
		},
		{
			Name:   ReasonLateEdge,
			Short:  "bytes were counted late at the start or end of the window",
			Of:     OfTrial,
			Chance: true,
			Means: "TCP: at the start or end of the window, an end read its byte count late, by more " +
				"than 20 ms and more than 1 % of the window. If it is late by half a window or more, the " +
				"trial fails and is retried at once, at most twice. The same applies to UDP if a stream " +
				"starts that late",
			Do: "use longer windows, or a tester with more CPU time",
		},
		{
			Name:  ReasonFailedTrials,
			Short: "trials failed",
			Of:    OfCell,
			Means: "some of the cell's trials failed",
			Do:    "read the reasons of the failed trials; resume the run to retry them",
		},
		{
			Name:  ReasonRunEnded,
			Short: "the run ended before",
			Of:    OfCell,
			Means: "the run ended before the cell's first trial",
			Do:    "resume the run",
		},
	}
	for i := range all {
		all[i].Class = ClassReason
	}
	return all
}

func caveats() []Kind {
	all := []Kind{
		{
			Name:  "after-change",
			Short: "made after a change",
			Of:    OfTrial,
			Means: "something had changed when the run was resumed, and the trial was made after that",
			Do:    "do not compare it with earlier trials",
		},
		{
			Name:  "another-boot",
			Short: "the virtual router was rebooted",
			Of:    OfTrial,
			Means: "the lab existed before the run, and its virtual router was rebooted before this trial",
			Do:    "run it again",
		},
		{
			Name: "another-run",
			Of:   OfRun,
			Means: "another run was in progress on this machine when this one began: each run measured " +
				"the load of the other, too",
			Do: "repeat it while no other run is in progress",
		},
		{
			Name:  "at-the-bound",
			Short: "figures of one trial at the bound",
			Of:    OfCell,
			Means: "rate, latency and CPU figures are from one trial of each search, at the lower bound " +
				"that the search found",
		},
		{
			Name:  "clock-moved",
			Short: "the CPU's clock changed",
			Of:    OfCell,
			Means: "the clock of the CPU that was measured differed between trials by more than 5 %",
			Do:    "cool the machine, or fix its clock (governor), and repeat",
		},
		{
			Name:  "count-mode",
			Short: "datagrams counted by their length",
			Of:    OfTrial,
			Means: "datagrams were counted by their total length: order, duplicates and delays are unknown",
			Do:    "set udp_mode=exact to see them",
		},
		{
			Name:  "several-pings",
			Short: "several hosts were pinged",
			Of:    OfTrial,
			Means: "the program that measured this run measured round trips to several hosts, or of " +
				"several kinds: the worst are shown, and the medians of all are listed",
			Do: "check which host is affected",
		},
		{
			Name:  "unreadable",
			Of:    OfRun,
			Means: "some trials that the store lists could not be read",
			Do:    "find out what damaged the store: the disk, or another program",
		},
		{
			Name:  "cut",
			Of:    OfRun,
			Means: "the plan was shortened to fit into the time of --for",
		},
		{
			Name: "time-spent",
			Of:   OfRun,
			Means: "the time given by --for ended before the last trials, so cells may have different " +
				"numbers of trials",
			Do: "give a longer --for, or finish the run with chokepoint resume RUN",
		},
		{
			Name: "emulated",
			Of:   OfRun,
			Means: "the router's CPUs are emulated: its absolute speed means nothing, but ratios of its " +
				"results, its counters, and how its results respond to a changed setting are meaningful",
			Do: "use KVM, or real hardware, for absolute numbers",
		},
		{
			Name:  "engine-accounts",
			Short: "the engine's counts are differences",
			Of:    OfTrial,
			Means: "the engine reports the packets sent and lost; the packets received are the " +
				"difference, not a count",
		},
		{
			Name:  "engine-fell-back",
			Short: "a slower mode of the engine",
			Of:    OfTrial,
			Means: "the engine's preferred mode did not work here, and a slower or less exact one was used",
			Do:    "read the reason; chokepoint doctor shows what the machine can do",
		},
		{
			Name:  "engine-usage",
			Short: "the engine's CPU time includes the warm-up",
			Of:    OfTrial,
			Means: "the engine's CPU time covers its whole run, not only the window",
		},
		{
			Name:  "engine-window",
			Short: "the engine chose the window",
			Of:    OfTrial,
			Means: "the engine chooses the window itself: whole seconds from the start of its connections",
		},
		{
			Name:  "evidence-incomplete",
			Short: "counters of the path are missing",
			Of:    OfTrial,
			Means: "some counters of the path could not be read after the load",
		},
		{
			Name:  "few-runs",
			Short: "fewer than six runs",
			Of:    OfRun,
			Means: "fewer than six runs per cell: there is a range, but no confidence interval and no " +
				"verdict",
			Do: "set method.runs to six or more",
		},
		{
			Name: "firmware-in-turn",
			Of:   OfRun,
			Means: "firmware was installed on the router between trials, so cells with different " +
				"firmware are not interleaved; the last firmware is still installed",
			Do: "trust a difference only if it exceeds the difference between two measurements of the " +
				"same firmware",
		},
		{
			Name: "foreign",
			Of:   OfRun,
			Means: "another program measured this run; the run lists what the results lack, compared " +
				"with trials of chokepoint",
			Do: "compare it with results of the same program, or measure with chokepoint if the missing " +
				"parts matter",
		},
		{
			Name: "imported",
			Of:   OfRun,
			Means: "a node's telemetry comes from a file that chokepoint-agent wrote there; the traffic " +
				"served to align the node's clock with the run's",
		},
		{
			Name:  "incomplete",
			Of:    OfRun,
			Means: "the run did not finish: cells may have fewer runs",
			Do:    "resume it",
		},
		{
			Name:  "irregular-search",
			Short: "a search without a regular result",
			Of:    OfCell,
			Means: "a goal of a search has no regular result (RFC 9971)",
			Do:    "allow the search more time, or a wider range of loads",
		},
		{
			Name: "left-out",
			Of:   OfRun,
			Means: "part of an imported file contained no usable number, such as a failed test or an " +
				"unknown value, and became no trial",
			Do: "measure that test again, if it is needed",
		},
		{
			Name:  "management-interface",
			Of:    OfRun,
			Means: "settings of the plan change the device through which chokepoint reaches a machine",
			Do:    "reach the machine through a port that is not measured",
		},
		{
			Name:  "lab-note",
			Of:    OfRun,
			Means: "a note about the lab, such as what is unavailable to an ordinary user",
		},
		{
			Name:  "late-edge",
			Short: "CPU time was read late",
			Of:    OfTrial,
			Means: "one end read its CPU time late at the start or end of the window",
		},
		{
			Name:  "interval-not-reached",
			Short: "the interval is wider than requested",
			Of:    OfCell,
			Means: "an adaptive run reached its maximum number of runs before the interval was as narrow " +
				"as requested",
			Do: "allow more runs, or a wider interval",
		},
		{
			Name:  "meter-failed",
			Short: "the power meter failed",
			Of:    OfTrial,
			Means: "the power meter gave no readings at the end of the trial, for the reason given",
			Do:    "check that the meter can be read; the trial's other numbers are valid",
		},
		{
			Name:  "no-datagrams",
			Of:    OfRun,
			Means: "no UDP packet gets through between the machines, so latency is not measured",
			Do:    "open the UDP ports in the firewall between the machines",
		},
		{
			Name: "no-tester-ceiling",
			Of:   OfRun,
			Means: "the maximum rate of the tester without the router was not measured, for the reason " +
				"given, so no rate is compared with it",
			Do: "leave measure.tester_ceiling out of the plan, if it is set",
		},
		{
			Name: "other-boots",
			Of:   OfRun,
			Means: "the lab existed before the run, and its virtual router was rebooted during the run; " +
				"only the trials of the boot with the most successful trials are used; the others count " +
				"as failed",
			Do: "run it again, in a lab that the run itself starts: there, all trials count",
		},
		{
			Name:  "partly-missing",
			Short: "a metric is missing in some trials",
			Of:    OfCell,
			Means: "a metric is known in only some of the trials",
		},
		{
			Name:  "peer-version",
			Of:    OfRun,
			Means: "the peer runs another version of chokepoint",
			Do:    "use the same version",
		},
		{
			Name: "place-lost",
			Of:   OfRun,
			Means: "when the run ended, it did not hold the labgrid place of the router any more: " +
				"somebody released it, or the coordinator was restarted; others may have used the router",
			Do: "repeat it while the coordinator stays up",
		},
		{
			Name: "power-metered",
			Of:   OfRun,
			Means: "power was read from an external meter; the text gives the meter, how often it was " +
				"read, and in which steps",
			Do: "make the window at least ten readings long, and the warm-up at least two: a plug's " +
				"reading is up to a second old",
		},
		{
			Name:  "power-typed-in",
			Of:    OfRun,
			Means: "power was read by hand and typed in, so it is the same for every cell",
			Do:    "use a meter that chokepoint can read (--meter)",
		},
		{
			Name:  "receiver-drops",
			Short: "the receiver's socket buffer dropped packets",
			Of:    OfTrial,
			Means: "packets were lost in the receiver's socket buffer: the tester lost them, not the path",
		},
		{
			Name:  "repeated",
			Short: "failed trials were repeated",
			Of:    OfCell,
			Means: "trials failed and were repeated successfully",
		},
		{
			Name:  "resumed-changed",
			Of:    OfRun,
			Means: "something had changed when the run was resumed",
		},
		{
			Name:  "router-not-watched",
			Short: "a router has no agent",
			Of:    OfTrial,
			Means: "a router has no agent, so no counter of it proves that the traffic passed through it",
		},
		{
			Name:  "router-unwatched",
			Of:    OfRun,
			Means: "there is no telemetry of the router between the machines",
			Do:    "run chokepoint-agent probe on the router during the run, and import its output",
		},
		{
			Name: "shared-cores",
			Of:   OfRun,
			Means: "tester and router share this machine's CPUs: the numbers describe a machine that " +
				"does both jobs",
			Do: "use two machines, or compare ratios only",
		},
		{
			Name: "super-packets",
			Of:   OfRun,
			Means: "packets of up to 64 KiB cross the virtual links: packet counts and header efficiency " +
				"differ from those on a wire",
			Do: "set offload=wire",
		},
		{
			Name:  "third-party",
			Of:    OfRun,
			Means: "the far end is an iperf3 server: nothing is known about its machine",
		},
		{
			Name:  "tunnel-not-set",
			Short: "a tunnel's setting was not applied",
			Of:    OfTrial,
			Means: "a setting could not be applied to the tunnel's device",
		},
		{
			Name: "unchecked",
			Of:   OfRun,
			Means: "some checks could not be made, for the reasons given: \"valid\" does not imply that " +
				"they would have passed",
			Do: "if it matters, measure on a machine that has the missing data sources",
		},
		{
			Name:  "unknown-drops",
			Short: "drops at the receiver are not reported",
			Of:    OfTrial,
			Means: "the receiver's system does not report drops in its socket buffer: losses may be the " +
				"tester's",
			Do: "use a receiver with Linux",
		},
		{
			Name:  "unverified",
			Short: "the content was not verified",
			Of:    OfCell,
			Means: "the content of the data on this path was not verified",
		},
		{
			Name:  "user-stamps",
			Short: "latency includes the wake-ups of the tester",
			Of:    OfTrial,
			Means: "the kernel did not timestamp every probe: the latency includes the tester's own " +
				"wake-up delays",
		},
		{
			Name:  "userspace-tunnel",
			Short: "the tunnel runs in userspace",
			Of:    OfTrial,
			Means: "the kernel lacks this kind of tunnel, so the userspace implementation was measured",
			Do:    "load the kernel module to measure the kernel's implementation",
		},
		{
			Name:  "virtual-cards",
			Of:    OfRun,
			Means: "an end has no physical network card, so offload=wire does not apply",
		},
	}
	for i := range all {
		all[i].Class = ClassCaveat
	}
	return all
}

func findings() []Kind {
	return []Kind{
		{
			Name:  FindingBufferbloat,
			Class: ClassFinding,
			Of:    OfCell,
			Means: "grade of the delay that the load adds to the median round-trip time: below 5 ms A+, " +
				"below 30 ms A (no finding for either), below 60 ms B, below 200 ms C, below 400 ms D, " +
				"else F (DSLReports' grades, as LibreQoS uses them)",
			Do: "put a queue such as cake or fq_codel before the bottleneck, with a rate just below it",
		},
	}
}
