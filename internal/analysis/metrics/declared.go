// Package metrics declares every quantity that is computed of a trial, and computes them from what one
// trial left behind.
package metrics

import (
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Metrics declares every quantity that Derive computes, in the order in which they are shown.
// docs/method.md describes the same names.
func Metrics() []record.Metric {
	var all []record.Metric
	for _, group := range [][]record.Metric{trafficMetrics(), searchMetrics(), tcpMetrics(), flowMetrics(),
		latencyMetrics(), loadMetrics(), dropMetrics()} {
		all = append(all, group...)
	}
	return all
}

func trafficMetrics() []record.Metric {
	path := func(name, unit, better, doc string) record.Metric {
		return record.Metric{Name: name, Unit: unit, Better: better, Scope: record.ScopePath, Doc: doc}
	}
	return []record.Metric{
		path(Goodput, "bit/s", record.Higher,
			"payload that arrived in the window ÷ the receiver's window; all flows, both directions"),
		path(GoodputUp, "bit/s", record.Higher,
			"the part of goodput_bps that went from near to far, when both directions were loaded"),
		path(GoodputDown, "bit/s", record.Higher,
			"the part of goodput_bps that went from far to near, when both directions were loaded"),
		path(PacketRate, "pps", record.Higher,
			"UDP packets that arrived in the window, without duplicates, per second"),
		path(offeredRate, "pps", "", "UDP packets that the sender really sent, per second"),
		path(LossRatio, "ratio", record.Lower, "UDP packets that never arrived or that the sender could not "+
			"send ÷ those that the rate asked for in the window"),
		path(UnsentRatio, "ratio", record.Lower,
			"UDP packets that the rate asked for but the sender could not send ÷ those asked for"),
		path(duplicates, "count", record.Lower, "UDP packets that arrived again"),
		path(reordered, "count", record.Lower,
			"UDP packets that arrived after one with a higher number (RFC 4737)"),
		path(delayVariation, "ns", record.Lower, "one-way delay of UDP packets above the lowest of their "+
			"flow in the window (RFC 5481, PDV), 99th percentile of all flows"),
		path(longestGap, "count", record.Lower, "most UDP packets of a flow that were lost in a row"),
		path(oneWayP50, "ns", record.Lower, "one-way delay of sampled packets of the load itself, p50, "+
			"rounded down by at most 3 %; engine xdp, where one clock tells both times"),
		path(oneWayP99, "ns", record.Lower, "one-way delay of sampled packets of the load itself, p99, "+
			"rounded down by at most 3 %; where p50 is"),
		path(GoodputPerCPU, "bit/s", record.Higher, "payload bits that arrived per second of CPU time, of "+
			"all cores of the machine that carries the nodes"),
		path(GoodputPerRouter, "bit/s", record.Higher,
			"the same per second of CPU time of the routers' own cores, all routers together"),
		path(GoodputPerWatt, "bit/s", record.Higher,
			"goodput_bps ÷ the mean power in the window: the router's where it has a source of its own, "+
				"else that of the machine that carries all nodes, else the condition watts as typed in"),
		path(Consistency, "ratio", record.Lower, "unevenness of the throughput inside the window: 1.2533 × "+
			"mean absolute deviation from its linear trend ÷ its mean, in bins of 200 ms or more"),
	}
}

func searchMetrics() []record.Metric {
	path := func(name, unit, better, doc string) record.Metric {
		return record.Metric{Name: name, Unit: unit, Better: better, Scope: record.ScopePath, Doc: doc}
	}
	const of = "conditional throughput (RFC 9971) of one interface, of the first goal "
	return []record.Metric{
		path(ThroughputNDR, "pps", record.Higher, of+"that allows no loss (no drop rate)"),
		path(ThroughputPDR, "pps", record.Higher, of+"that allows some loss (partial drop rate)"),
		path(ThroughputDelay, "pps", record.Higher, of+"that bounds the added delay"),
		path(ThroughputPaced, "bit/s", record.Higher, of+
			"that bounds the added delay, with paced TCP: payload"),
		path(ConnectionsNDR, "flows/s", record.Higher, of+
			"that allows no loss, of new TCP connections: none failed or was late"),
		path(ConnectionsPDR, "flows/s", record.Higher, of+
			"that allows some loss, of new TCP connections that failed or were late"),
		path(SearchSeconds, "s", record.Lower,
			"how long the search took, from its first trial's start to its last trial's end"),
	}
}

func tcpMetrics() []record.Metric {
	flow := func(name, unit, better, doc string) record.Metric {
		return record.Metric{Name: name, Unit: unit, Better: better, Scope: record.ScopeFlow, Doc: doc}
	}
	return []record.Metric{
		flow(Retransmits, "count", record.Lower, "TCP segments sent again in the window, all flows"),
		flow(rttTCP, "ns", record.Lower,
			"smoothed round-trip time of TCP (TCP_INFO), median over window and flows"),
		flow(minRTTTCP, "ns", record.Lower, "smallest round-trip time that TCP saw, of all flows"),
		flow(busyRatio, "ratio", "", "share of the window in which TCP had data to send (chronographs, "+
			"Linux commit 05b055e8), mean over flows"),
		flow(RwndLimited, "ratio", record.Lower,
			"share of the window in which the receiver's window held TCP back"),
		flow(sndbufLimited, "ratio", record.Lower,
			"share of the window in which the send buffer held TCP back"),
		flow(NetworkLimited, "ratio", "", "busy - rwnd limited - sndbuf limited: share in which the network "+
			"or congestion control held TCP back"),
	}
}

func latencyMetrics() []record.Metric {
	var all []record.Metric
	for _, kind := range []struct{ name, doc string }{
		{"idle", "round-trip time of a probe on the idle path"},
		{"loaded", "round-trip time of a probe beside the load"},
	} {
		for _, q := range Percentiles {
			all = append(all, record.Metric{
				Name: RTT(kind.name, q), Unit: "ns", Better: record.Lower, Scope: record.ScopePath,
				Doc: kind.doc + ", " + q.Name + " of the probes that were answered",
			})
		}
	}
	path := func(name, unit, better, doc string) record.Metric {
		return record.Metric{Name: name, Unit: unit, Better: better, Scope: record.ScopePath, Doc: doc}
	}
	return append(all,
		path(RTTAdded, "ns", record.Lower,
			"rtt_loaded_p50_ns - rtt_idle_p50_ns of the same path: what the load adds"),
		path(ProbeLoss, "ratio", record.Lower,
			"latency probes without an answer ÷ those sent, beside the load"),
		path(ProbeLossIdle, "ratio", record.Lower, "the same on the idle path"),
		path(ProbeLate, "ns", record.Lower,
			"how late the probe was sent, 99th percentile: its own timer error"),
		path(probeSpacing, "ns", record.Lower,
			"how far the gap between two probes was from the planned one, 99th percentile"),
		path(Responsiveness, "rpm", record.Higher, "round trips per minute under load: the mean of the next "+
			"two (draft-ietf-ippm-responsiveness, without TLS)"),
		path(foreignRPM, "rpm", record.Higher, "60 s ÷ the mean of two trimmed means on connections of "+
			"their own beside the load: TCP's handshake, and a request with its response"),
		path(loadedRPM, "rpm", record.Higher,
			"60 s ÷ the trimmed mean of a request with its response on a connection that carries the load"),
	)
}

func loadMetrics() []record.Metric {
	var all []record.Metric
	for _, who := range []struct{ prefix, scope, doc string }{
		{HostNode, record.ScopeHost, "of the machine that carries all nodes, shared by all roles"},
		{"router", record.ScopeNode, "of the router's own cores"},
	} {
		m := func(stem, unit, better, doc string) {
			all = append(all, record.Metric{Name: who.prefix + "_" + stem, Unit: unit, Better: better,
				Scope: who.scope, Doc: doc + ", " + who.doc})
		}
		m(CPURatio, "ratio", record.Lower, "share of the window in which cores were busy, mean of all cores")
		m(busiestCore, "ratio", record.Lower, "the same of the busiest core")
		m(softirqCore, "ratio", record.Lower,
			"share of the window in software interrupts, of the core with most")
		m(StealRatio, "ratio", record.Lower,
			"share of the window that a hypervisor took away, mean of all cores")
		m(ForeignRatio, "ratio", record.Lower,
			"CPU time of processes that do not belong to the lab ÷ the window, in cores")
		m(powerWatts, "W", record.Lower, "mean power in the window")
		m(Temperature, "°C", record.Lower, "highest temperature in the window")
		m(loopRate, "Hz", record.Higher, "rounds of a fixed loop per second, median of short looks at each "+
			"core in turn: it falls when a core is clocked down or its time is taken away unseen")
	}
	return append(all, record.Metric{
		Name: GuestsCPU, Unit: "ratio", Better: record.Lower, Scope: record.ScopeHost,
		Doc: "CPU time of the threads of the lab's virtual machines ÷ the window, in cores of the host",
	}, record.Metric{
		Name: EngineCPU, Unit: "s", Better: record.Lower, Scope: record.ScopePath,
		Doc: "CPU time of the load generator's own processes in the window, both ends; on kernels without " +
			"IRQ time accounting it holds the software interrupts that interrupted them",
	})
}

func dropMetrics() []record.Metric {
	count := func(name, scope, doc string) record.Metric {
		return record.Metric{Name: name, Unit: "count", Better: record.Lower, Scope: scope, Doc: doc}
	}
	return []record.Metric{
		count(softnetDrops, record.ScopeHost,
			"packets dropped because a core's backlog was full (softnet_stat column 2), in the window"),
		count(SoftnetSqueeze, record.ScopeHost,
			"times a core's packet work ran out of budget (softnet_stat column 3), in the window"),
		count(interfaceDrops, record.ScopeNode,
			"packets that interfaces of the routers dropped, in the window"),
		count(qdiscDrops, record.ScopeNode,
			"packets that queueing disciplines of the routers dropped, in the window"),
		count(Fragments, record.ScopeNode, "IP fragments that the routers made, in the window"),
		count(ConntrackUsed, record.ScopeNode,
			"connections tracked by the routers, largest value in the window"),
		count(conntrackDrops, record.ScopeNode, "packets that connection tracking of the routers dropped, "+
			"mostly because its table was full, in the window"),
		{Name: FlowsOffloaded, Unit: "count", Scope: record.ScopeNode,
			Doc: "connections that a flow table of the routers carried past their rules, largest value in " +
				"the window"},
		count(IPsecDrops, record.ScopeNode,
			"packets that IPsec of the routers dropped (/proc/net/xfrm_stat), in the window"),
		count(KernelDrops, record.ScopeNode,
			"packets that the routers' kernels dropped for any reason (tracepoint skb:kfree_skb; the "+
				"samples tell the reasons), in the window; where the routers are machines of the lab"),
	}
}

// Names of the metrics that other files compute or ask for.
const (
	Goodput          = "goodput_bps"
	GoodputUp        = "goodput_up_bps"
	GoodputDown      = "goodput_down_bps"
	PacketRate       = "packet_rate_pps"
	offeredRate      = "offered_rate_pps"
	LossRatio        = "loss_ratio"
	UnsentRatio      = "unsent_ratio"
	duplicates       = "duplicates"
	reordered        = "reordered"
	delayVariation   = "delay_variation_p99_ns"
	longestGap       = "longest_loss_gap"
	oneWayP50        = "one_way_p50_ns"
	oneWayP99        = "one_way_p99_ns"
	GoodputPerCPU    = "goodput_per_cpu_second_bps"
	GoodputPerRouter = "goodput_per_router_cpu_second_bps"
	GoodputPerWatt   = "goodput_per_watt_bps"
	Consistency      = "consistency_ratio"

	ThroughputNDR   = "throughput_ndr_pps"
	ThroughputPDR   = "throughput_pdr_pps"
	ThroughputDelay = "throughput_delay_pps"
	ThroughputPaced = "throughput_delay_bps"
	ConnectionsNDR  = "connections_ndr_per_s"
	ConnectionsPDR  = "connections_pdr_per_s"
	SearchSeconds   = "search_s"

	Retransmits    = "retransmits"
	rttTCP         = "rtt_tcp_ns"
	minRTTTCP      = "rtt_tcp_min_ns"
	busyRatio      = "tcp_busy_ratio"
	RwndLimited    = "tcp_rwnd_limited_ratio"
	sndbufLimited  = "tcp_sndbuf_limited_ratio"
	NetworkLimited = "tcp_network_limited_ratio"

	RTTAdded      = "rtt_added_p50_ns"
	ProbeLoss     = "probe_loss_ratio"
	ProbeLossIdle = "probe_loss_idle_ratio"
	ProbeLate     = "probe_late_p99_ns"
	probeSpacing  = "probe_spacing_error_p99_ns"

	Responsiveness = "responsiveness_rpm"
	foreignRPM     = "responsiveness_foreign_rpm"
	loadedRPM      = "responsiveness_loaded_rpm"

	EngineCPU      = "engine_cpu_s"
	softnetDrops   = "softnet_drops"
	SoftnetSqueeze = "softnet_time_squeeze"
	interfaceDrops = "router_interface_drops"
	qdiscDrops     = "router_qdisc_drops"
	Fragments      = "router_fragments"
	ConntrackUsed  = "router_conntrack_count"
	conntrackDrops = "router_conntrack_drops"
	FlowsOffloaded = "router_flows_offloaded"
	IPsecDrops     = "router_ipsec_drops"
	KernelDrops    = "router_kernel_drops"
	GuestsCPU      = "guests_cpu_ratio"
)

// Stems that exist for the host and for routers with cores of their own.
const (
	CPURatio     = "cpu_ratio"
	busiestCore  = "busiest_core_ratio"
	softirqCore  = "softirq_busiest_core_ratio"
	StealRatio   = "steal_ratio"
	ForeignRatio = "foreign_cpu_ratio"
	powerWatts   = "power_w"
	Temperature  = "temperature_c"
	loopRate     = "loop_rate_hz"
)

// HostNode is the name of the machine that carries all nodes.
const HostNode = "host"

// percentile is a quantile with its name in metrics.
type percentile struct {
	Name  string
	Level float64
}

var Percentiles = [...]percentile{{"p50", .5}, {"p90", .9}, {"p99", .99}, {"p999", .999}, {"p9999", .9999}}

func RTT(kind string, q percentile) string { return "rtt_" + kind + "_" + q.Name + "_ns" }

// flowPercentiles are told of flows and of handshakes; requests have p99.9 as well.
var flowPercentiles = Percentiles[:3]

// flowSizes name the classes of flows by their least size.
var flowSizes = [...]struct{ name, words string }{
	{"small", "below 100 kB"}, {"medium", "of 100 kB or more, below 10 MB"}, {"large", "of 10 MB or more"},
}

func flowMetrics() []record.Metric {
	var all []record.Metric
	path := func(name, unit, better, doc string) {
		all = append(all, record.Metric{Name: name, Unit: unit, Better: better, Scope: record.ScopePath,
			Doc: doc})
	}
	path(FlowRate, "flows/s", record.Higher, "short flows, each on a TCP connection of its own, that were "+
		"completed in the window, per second; engine flows")
	for _, q := range flowPercentiles {
		path(flowTime("connect", q), "ns", record.Lower,
			"TCP handshake of the flows begun in the window, from the call to its answer, "+q.Name)
	}
	for _, q := range flowPercentiles {
		path(flowTime("completion", q), "ns", record.Lower,
			"flow completion time, from a flow's intended start to the last byte of the answer, "+q.Name+
				" of those to start in the window; what failed or was not done by its end counts as slower "+
				"than all others")
	}
	for _, s := range flowSizes {
		for _, q := range flowPercentiles {
			path(flowTime("completion_"+s.name, q), "ns", record.Lower, "the same of flows "+s.words+", "+
				q.Name)
		}
	}
	path(flowFailed, "ratio", record.Lower,
		"flows that were refused, reset or wrongly answered ÷ those to start in the window")
	path(flowUnfinished, "ratio", "", "flows that were not done by the window's end ÷ those to start in it")
	path(flowLate, "ns", record.Lower, "how much later than intended a flow was begun, 99th percentile: for "+
		"want of time or of open connections; where they are begun at a rate")
	path(RequestRate, "requests/s", record.Higher,
		"requests whose response was complete in the window, per second, of all connections; engine requests")
	for _, q := range Percentiles[:4] {
		path(requestTime(q), "ns", record.Lower, "from sending a request to the last byte of its response, "+
			q.Name+" of those sent in the window")
	}
	return all
}

const (
	FlowRate       = "flows_per_s"
	flowFailed     = "flow_failed_ratio"
	flowUnfinished = "flow_unfinished_ratio"
	flowLate       = "flow_late_p99_ns"
	RequestRate    = "requests_per_s"
)

func flowTime(what string, q percentile) string { return "flow_" + what + "_" + q.Name + "_ns" }

func requestTime(q percentile) string { return "request_" + q.Name + "_ns" }
