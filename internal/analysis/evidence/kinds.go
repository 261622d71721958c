package evidence

import "slices"

// Classes of kinds.
const (
	ClassReason  = "reason"  // to doubt a trial or cell: it makes it suspect
	ClassCaveat  = "caveat"  // to be known beside the number: it makes nothing suspect
	ClassFinding = "finding" // what was found
)

// Of what a kind is said.
const (
	OfTrial = "trial"
	OfCell  = "cell"
	OfRun   = "run"
)

// Kind declares one thing that can be said of results.
type Kind struct {
	Name      string // the stable word of the document
	Class, Of string
	Means     string // what it means; of a reason: when it fires
	Do        string // what to do about it; "" = nothing
	// Chance marks a reason that blames chance as well as the set-up: it makes a cell suspect only where it
	// touches a quarter of its trials. The median does not move with fewer.
	Chance  bool
	Content bool // Content marks a reason that a verifying trial casts on the cells of its path.
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

// Kinds of findings: what a load adds to the round trip, and on which parts of the path.
const (
	FindingBufferbloat = "bufferbloat"
	FindingSegments    = "latency-segments"
)

// Kinds declares everything that is said of results beside their numbers, in one place: reasons in the
// order of the gate, then caveats and findings by name. The reference is written from it, and a test holds
// the code to use no other.
func Kinds() []Kind { return slices.Concat(reasons(), caveats(), findings()) }

// KindOf is the declaration of a kind; of one that a newer version wrote, its name alone.
func KindOf(name string) Kind {
	for _, k := range Kinds() {
		if k.Name == name {
			return k
		}
	}
	return Kind{Name: name}
}

func reasons() []Kind {
	all := []Kind{
		{
			Name: ReasonTesterLimited,
			Of:   OfTrial,
			Means: "the generator could not send more than 1 % of " +
				"the packets that the rate asked for; or more than 1 % of those sent were lost in the " +
				"receiver's own socket buffers; or a sender that came late sent more at once than a " +
				"policer's " +
				"bucket holds, and packets were lost at a rate that it lets pass; or, where the generator " +
				"has " +
				"a machine of its own, one of its threads or a core of its machine was busy for 98 % of " +
				"the " +
				"window; or, of a cell whose tester and router have CPUs of their own, the tester alone is " +
				"less than 1.2 times as fast",
			Do: "ask for a lower rate or more streams, or use a faster tester: the path may do more",
		},
		{
			Name:    ReasonNotInTunnel,
			Of:      OfTrial,
			Content: true,
			Means: "the counters of the tunnel's devices, in the direction of the data, or of the router's " +
				"did not move, or show less than 90 % of the window's payload between its start and the " +
				"load's end, or than 80 % in the whole load; or nothing proves the path",
			Do: "look for a second route between the ends that bypasses the tunnel or the router",
		},
		{
			Name:    ReasonWrongMTU,
			Of:      OfTrial,
			Content: true,
			Means: "the path carries packets of another size than the factors say, or TCP's segments had " +
				"become smaller by the window's end",
			Do: "set the MTU of the link or tunnel, or the factor, to the same value",
		},
		{
			Name:  ReasonAboveCeiling,
			Of:    OfTrial,
			Means: "more than 100.5 % of the ceiling arrived",
			Do:    "check that the shaper is on the path and that the stated link rate is right",
		},
		{
			Name:    ReasonAccounting,
			Of:      OfTrial,
			Content: true,
			Means:   "sent ≠ received + lost for a stream, or a stream or flow is missing",
			Do:      "repeat it; if it stays, report the run as an error of the load generator",
		},
		{
			Name: ReasonNothingArrived,
			Of:   OfTrial,
			Means: "no payload arrived in the window, or none " +
				"through one of several tunnels",
			Do: "see what drops it; a path that carries nothing at this " +
				"load is not told from a broken one",
		},
		{
			Name:    ReasonCorrupt,
			Of:      OfTrial,
			Content: true,
			Means: "checked bytes differ from those that " +
				"were sent, or none was checked where all should have been",
			Do: "test memory, network cards " +
				"and their offloads: something on the path changes data",
		},
		{
			Name: ReasonThrottled,
			Of:   OfTrial,
			Means: "a core's clock or a cooling device says that heat or " +
				"power held the machine back in the window",
			Do: "cool the machine, or measure for so long " +
				"that the slower state is the one you get",
		},
		{
			Name:   ReasonBackgroundLoad,
			Of:     OfTrial,
			Chance: true,
			Means: "processes that are not the lab's " +
				"used more than 10 % of one core, or a hypervisor took more than 5 % of all",
			Do: "stop what else runs there, and repeat",
		},
		{
			Name:   ReasonSamplerStalled,
			Of:     OfTrial,
			Chance: true,
			Means: "the 10 Hz sampler came a second " +
				"late or more in the window, samples of so long a time are missing, or the node's clock " +
				"was " +
				"behind by as much afterwards",
			Do: "the node had no time for it: read its CPU figures with " +
				"care",
		},
		{
			Name:   ReasonEngineStalled,
			Of:     OfTrial,
			Chance: true,
			Means: "an end of the load took no note of " +
				"its counts for a second or more of the window",
			Do: "keep other work off that machine, and " +
				"repeat",
		},
		{
			Name:  ReasonKernelLog,
			Of:    OfTrial,
			Means: "the kernel logged an error during the trial",
			Do:    "read the line; repeat once its cause is gone",
		},
		{
			Name:  ReasonLinkFlap,
			Of:    OfTrial,
			Means: "a link went down and up",
			Do:    "check cables, ports and drivers",
		},
		{
			Name:   ReasonDrift,
			Of:     OfTrial,
			Chance: true,
			Means: "the last third of the window differs from " +
				"the first by at least 10 % and beyond chance (Mann–Whitney, p ≤ 0.0025)",
			Do: "warm up longer, or measure longer",
		},
		{
			Name:   ReasonLateProbe,
			Of:     OfTrial,
			Chance: true,
			Means: "the latency probe sent one in a " +
				"hundred of its packets too late (5 ms with user stamps; 20 ms or its interval with kernel " +
				"stamps), or skipped a fifth of its slots",
			Do: "trust the latency only as far as that: the " +
				"tester had no time for it",
		},
		{
			Name:   ReasonLateEdge,
			Of:     OfTrial,
			Chance: true,
			Means: "of TCP: an end read what it had carried " +
				"more than 20 ms and more than 1 % of the window late, at an edge of the window. Half a " +
				"window late or more, the trial has no number: it failed, and is tried again at once, " +
				"twice " +
				"at most. So is one of UDP with a stream that began to be sent so late",
			Do: "use longer windows, or a tester with more time",
		},
		{
			Name:  ReasonFailedTrials,
			Of:    OfCell,
			Means: "some of the cell's trials failed",
			Do:    "read the failures among the trials; resume the run to try them again",
		},
		{
			Name:  ReasonRunEnded,
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
			Name: "after-change",
			Of:   OfTrial,
			Means: "the trial was made after the run had been resumed with " +
				"something else than it began with",
			Do: "do not compare it with those before",
		},
		{
			Name: "another-boot",
			Of:   OfTrial,
			Means: "the virtual router, of a lab that stood before the " +
				"run, was booted anew before the trial: it is another router",
			Do: "run it again",
		},
		{
			Name: "another-run",
			Of:   OfRun,
			Means: "another run went on on the same machine when this one " +
				"began: each measured the other's load",
			Do: "repeat it alone",
		},
		{
			Name: "at-the-bound",
			Of:   OfCell,
			Means: "rate, latency and CPU figures are those of one trial " +
				"of each search, at the bound that it found",
		},
		{
			Name: "clock-moved",
			Of:   OfCell,
			Means: "the clock of the CPU whose cipher was measured was " +
				"another one, by more than 5 %, in some trials than in others",
			Do: "cool the machine, or fix its clock (governor), and repeat",
		},
		{
			Name: "count-mode",
			Of:   OfTrial,
			Means: "datagrams were counted by length: order, duplicates and " +
				"delays are unknown",
			Do: "set udp_mode=exact to see them",
		},
		{
			Name: "several-pings",
			Of:   OfTrial,
			Means: "another program timed round trips to several hosts, or of " +
				"several kinds: those of the worst are shown, and the medians of all are listed",
			Do: "see which host the others have in common with it",
		},
		{
			Name:  "unreadable",
			Of:    OfRun,
			Means: "trials that the store lists could not be read from it",
			Do:    "find out what has damaged the file: the disk, or another program",
		},
		{Name: "cut", Of: OfRun, Means: "--budget left this out"},
		{
			Name: "time-spent",
			Of:   OfRun,
			Means: "the time of --budget ended before the last trials: cells " +
				"may have different numbers of trials",
			Do: "give a longer --budget, or chokepoint resume RUN",
		},
		{
			Name: "emulated",
			Of:   OfRun,
			Means: "the router's CPUs are emulated: its absolute speed means " +
				"nothing; its " +
				"ratios, counters and reactions do",
			Do: "use KVM, or real hardware, for absolute numbers",
		},
		{Name: "engine-accounts", Of: OfTrial, Means: "the engine's own counts are differences, not counts"},
		{
			Name: "engine-fell-back",
			Of:   OfTrial,
			Means: "what the engine is for did not work here; a " +
				"lesser mode was used",
			Do: "read why; chokepoint doctor says what the machine can do",
		},
		{
			Name:  "engine-usage",
			Of:    OfTrial,
			Means: "the engine's CPU time is that of its whole run, not of the window",
		},
		{
			Name: "engine-window",
			Of:   OfTrial,
			Means: "the engine sets its own window: whole seconds, from " +
				"its connections' start",
		},
		{
			Name:  "evidence-incomplete",
			Of:    OfTrial,
			Means: "counters of the path could not be read afterwards",
		},
		{
			Name: "few-runs",
			Of:   OfRun,
			Means: "fewer than six runs per cell: there is a range, not a " +
				"confidence interval, and no verdict",
			Do: "set method.runs to six or more",
		},
		{
			Name: "firmware-in-turn",
			Of:   OfRun,
			Means: "firmware was installed on the router between trials, " +
				"one after the other: its cells are not interleaved, and the last one is still there",
			Do: "expect no less of a difference than the first firmware shows against itself",
		},
		{
			Name: "foreign",
			Of:   OfRun,
			Means: "another program measured this: what trials of chokepoint have " +
				"and its results have not is listed",
			Do: "compare it with results of the same program, " +
				"or measure by chokepoint where what is missing matters",
		},
		{
			Name: "imported",
			Of:   OfRun,
			Means: "what a node did comes from a file that its own probe wrote, " +
				"its clock related to the run's by the traffic",
		},
		{
			Name:  "incomplete",
			Of:    OfRun,
			Means: "the run has not ended by itself: cells may lack runs",
			Do:    "resume it",
		},
		{
			Name:  "irregular-search",
			Of:    OfCell,
			Means: "a goal of a search has no regular result (RFC 9971)",
			Do:    "allow the search more time, or a greater range of loads",
		},
		{
			Name: "left-out",
			Of:   OfRun,
			Means: "a part of an imported file gave no number and is no trial: " +
				"a test that failed, or a value that was not known",
			Do: "measure that test again, if it is missing",
		},
		{
			Name: "management-interface",
			Of:   OfRun,
			Means: "settings change the device by which a machine " +
				"itself is reached",
			Do: "reach it by a port that is not measured",
		},
		{
			Name: "lab-note",
			Of:   OfRun,
			Means: "what the lab says of itself, such as what an ordinary " +
				"user loses",
		},
		{Name: "late-edge", Of: OfTrial, Means: "an end read its CPU time late at an edge of the window"},
		{
			Name: "interval-not-reached",
			Of:   OfCell,
			Means: "an adaptive run reached its greatest number of " +
				"runs before the interval was as narrow as the plan asks",
			Do: "allow more runs, or a wider interval",
		},
		{
			Name: "meter-failed",
			Of:   OfTrial,
			Means: "the power meter gave no readings at the end of the " +
				"trial, for the reason given",
			Do: "see that it can be read; the trial's other numbers stand",
		},
		{
			Name: "no-datagrams",
			Of:   OfRun,
			Means: "no UDP gets through between the machines: latency is " +
				"not measured",
			Do: "open the port in the firewall between them",
		},
		{
			Name:  "no-tester-ceiling",
			Of:    OfRun,
			Means: "what the tester alone can do was not measured, with the reason",
		},
		{
			Name: "other-boots",
			Of:   OfRun,
			Means: "a virtual router, of a lab that stood before the run, was " +
				"booted anew in its middle: trials of another boot than most are set aside as failed",
			Do: "run it again; a lab that the run makes by itself has the same router at every boot",
		},
		{Name: "partly-missing", Of: OfCell, Means: "a metric is known in some of the trials only"},
		{
			Name:  "peer-version",
			Of:    OfRun,
			Means: "the peer is another version of chokepoint",
			Do:    "use the same one",
		},
		{
			Name: "power-metered",
			Of:   OfRun,
			Means: "power is what a meter told from outside: whose, how " +
				"often and in which steps",
			Do: "measure for ten readings or more, with a warm-up of two at " +
				"least: what a plug says is up to a second old",
		},
		{
			Name: "power-typed-in",
			Of:   OfRun,
			Means: "power was read by hand and typed in: it is the same " +
				"for every cell, whatever was sent",
			Do: "name a meter that can be read",
		},
		{
			Name: "receiver-drops",
			Of:   OfTrial,
			Means: "packets were lost in the receiver's own socket " +
				"buffer: the tester's loss, not the path's",
		},
		{Name: "repeated", Of: OfCell, Means: "trials failed and were repeated with success"},
		{
			Name:  "resumed-changed",
			Of:    OfRun,
			Means: "the run was resumed with something else than it began with",
		},
		{
			Name: "router-not-watched",
			Of:   OfTrial,
			Means: "a router has no agent: its counters are " +
				"missing, and that traffic passed it is not proven by them",
		},
		{
			Name:  "router-unwatched",
			Of:    OfRun,
			Means: "what the router between the machines did is missing",
			Do:    "run chokepoint-agent probe there and import its file",
		},
		{
			Name: "shared-cores",
			Of:   OfRun,
			Means: "tester and router share this machine's CPUs: numbers " +
				"describe the machine doing both",
			Do: "use two machines, or compare ratios only",
		},
		{
			Name: "super-packets",
			Of:   OfRun,
			Means: "packets of up to 64 KiB cross the virtual links: " +
				"packet counts and header efficiency do not describe a wire",
			Do: "set offload=wire",
		},
		{
			Name:  "third-party",
			Of:    OfRun,
			Means: "the far end is somebody else's iperf3: of its machine nothing is known",
		},
		{Name: "tunnel-not-set", Of: OfTrial, Means: "a setting could not be made on a tunnel's device"},
		{
			Name: "unchecked",
			Of:   OfRun,
			Means: "checks of the gate that trials gave no means for, and why: " +
				"valid does not say that they would have passed",
			Do: "measure where the sources that are named exist, if it matters",
		},
		{
			Name: "unknown-drops",
			Of:   OfTrial,
			Means: "the receiver's system does not tell what its socket " +
				"buffer had no room for: losses may be the tester's",
			Do: "receive at an end with Linux",
		},
		{Name: "unverified", Of: OfCell, Means: "the content of this path was not verified"},
		{
			Name: "user-stamps",
			Of:   OfTrial,
			Means: "the kernel did not stamp every probe: latency includes " +
				"the tester's own wake-ups",
		},
		{
			Name: "userspace-tunnel",
			Of:   OfTrial,
			Means: "the kernel lacks this tunnel: the userspace " +
				"implementation was measured",
			Do: "load the kernel's module to measure that",
		},
		{
			Name:  "virtual-cards",
			Of:    OfRun,
			Means: "an end has no network card of hardware: offload=wire does not hold",
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
			Means: "the load adds to the median " +
				"round trip: below 5 ms A+, 30 A (no finding), 60 B, 200 C, 400 D, else F (DSLReports' " +
				"grades, as LibreQoS keeps them)",
			Do: "put a queue such as cake or fq_codel before the " +
				"bottleneck, with a rate just below it",
		},
	}
}
