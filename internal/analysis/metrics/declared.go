// Package metrics declares all metrics of a trial, computes them from the record of one trial, and defines
// the results of a cell.
package metrics

import (
	"slices"
	"strings"
	"sync"

	"github.com/chokepoint-lab/chokepoint/internal/cipher"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Metrics returns the declarations of all computed metrics, in display order.
func Metrics() []record.Metric {
	return slices.Concat(trafficMetrics(), searchMetrics(), tcpMetrics(), flowMetrics(), latencyMetrics(),
		loadMetrics(), dropMetrics(), cipherMetrics(), importedMetrics())
}

const higher, lower = record.Higher, record.Lower

// declared returns the declaration of a metric. better is "" if neither higher nor lower values are better.
func declared(scope, name, label, unit, better, doc string) record.Metric {
	return record.Metric{Name: name, Label: label, Unit: unit, Better: better, Scope: scope, Doc: doc}
}

// ofPath returns the declaration of a metric that belongs to the path and is the same for all loads on it.
func ofPath(name, label, unit, better, doc string) record.Metric {
	return declared(record.ScopePath, name, label, unit, better, doc)
}

func trafficMetrics() []record.Metric {
	return []record.Metric{
		ofPath(Goodput, "goodput", "bit/s", higher,
			"payload that arrived in the window, per second; all flows, both directions"),
		ofPath(GoodputUp, "goodput up", "bit/s", higher,
			"the part of goodput_bps that went from near to far, if both directions were loaded"),
		ofPath(GoodputDown, "goodput down", "bit/s", higher,
			"the part of goodput_bps that went from far to near, if both directions were loaded"),
		ofPath(PacketRate, "packet rate", "pps", higher,
			"UDP packets that arrived in the window, without duplicates, per second"),
		ofPath(offeredRate, "offered packet rate", "pps", "",
			"UDP packets sent per second"),
		ofPath(LossRatio, "packet loss", "ratio", lower, "UDP packets that never arrived or could not be "+
			"sent ÷ packets that the set rate required in the window"),
		ofPath(UnsentRatio, "unsent packets", "ratio", lower,
			"UDP packets that the sender could not send ÷ packets that the set rate required"),
		ofPath(duplicates, "duplicates", "count", lower, "UDP packets that arrived again"),
		ofPath(Reordered, "reordered packets", "count", lower,
			"UDP packets that arrived after one with a higher sequence number (RFC 4737)"),
		ofPath(delayVariation, "delay variation (p99)", "ns", lower, "one-way delay of UDP packets minus "+
			"the lowest one-way delay of their flow in the window (PDV, RFC 5481), 99th percentile over "+
			"all flows"),
		ofPath(longestGap, "longest loss gap", "count", lower,
			"largest number of consecutive UDP packets of a flow that were lost"),
		ofPath(oneWayP50, "one-way delay (p50)", "ns", lower, "one-way delay of sampled packets of the "+
			"load itself, p50, rounded down by at most 3 %; engine xdp, if sender and receiver share a "+
			"clock"),
		ofPath(oneWayP99, "one-way delay (p99)", "ns", lower, "one-way delay of sampled packets of the "+
			"load itself, p99, rounded down by at most 3 %; engine xdp, if sender and receiver share a "+
			"clock"),
		ofPath(GoodputPerCPU, "goodput per CPU second", "bit/s", higher, "payload bits that arrived per "+
			"second of CPU time, all cores of the machine that carries all nodes"),
		ofPath(GoodputPerRouter, "goodput per CPU second of the router", "bit/s", higher,
			"payload bits that arrived per second of CPU time of the routers' own cores, all routers "+
				"together"),
		ofPath(GoodputPerWatt, "goodput per watt", "bit/s", higher,
			"goodput_bps ÷ power_loaded_w: bits per joule; its inverse is the energy per bit"),
		ofPath(Consistency, "unevenness", "ratio", lower, "unevenness of the throughput within the window: "+
			"1.2533 × mean absolute deviation from its linear trend ÷ its mean, in bins of 200 ms or more"),
	}
}

func searchMetrics() []record.Metric {
	const of = "conditional throughput (RFC 9971) of one interface, for the first goal "
	return []record.Metric{
		ofPath(ThroughputNDR, "throughput without loss", "pps", higher,
			of+"that allows no loss (non-drop rate)"),
		ofPath(ThroughputPDR, "throughput with some loss", "pps", higher,
			of+"that allows some loss (partial drop rate)"),
		ofPath(ThroughputDelay, "throughput within a delay", "pps", higher, of+"that bounds the added delay"),
		ofPath(ThroughputPaced, "paced goodput within a delay", "bit/s", higher,
			of+"that bounds the added delay: payload of paced TCP"),
		ofPath(ConnectionsNDR, "connection rate without loss", "flows/s", higher,
			of+"that allows no loss: rate of new TCP connections of which none failed or was late"),
		ofPath(ConnectionsPDR, "connection rate with some loss", "flows/s", higher,
			of+"that allows some loss: rate of new TCP connections of which some failed or were late"),
		ofPath(SearchSeconds, "time of the search", "s", lower,
			"duration of the search, from the start of its first trial to the end of its last"),
	}
}

func tcpMetrics() []record.Metric {
	flow := func(name, label, unit, better, doc string) record.Metric {
		return declared(record.ScopeFlow, name, label, unit, better, doc)
	}
	return []record.Metric{
		flow(Retransmits, "retransmits", "count", lower, "TCP segments retransmitted in the window, all "+
			"flows"),
		flow(RTTTCP, "TCP's round trip", "ns", lower,
			"smoothed round-trip time of TCP (TCP_INFO), median over the window and all flows"),
		flow(MinRTTTCP, "TCP's smallest round trip", "ns", lower,
			"smallest round-trip time that TCP measured in any flow"),
		flow(BusyRatio, "time with data to send", "ratio", "", "share of the window in which TCP had data "+
			"to send (chronographs, Linux commit 05b055e8), mean over flows"),
		flow(RwndLimited, "time limited by the receive window", "ratio", lower,
			"share of the window in which the receive window limited TCP"),
		flow(SndbufLimited, "time limited by the send buffer", "ratio", lower,
			"share of the window in which the send buffer limited TCP"),
		flow(NetworkLimited, "time limited by the network", "ratio", "", "share of the window in which "+
			"the network or congestion control limited TCP: tcp_busy_ratio - tcp_rwnd_limited_ratio - "+
			"tcp_sndbuf_limited_ratio"),
	}
}

func latencyMetrics() []record.Metric {
	var all []record.Metric
	for _, kind := range []struct{ name, label, doc string }{
		{"idle", "idle round trip", "round-trip time on the idle path"},
		{"loaded", "round trip under load", "round-trip time under load"},
	} {
		for _, q := range Percentiles {
			all = append(all, ofPath(RTT(kind.name, q), kind.label+" ("+q.Name+")", "ns", lower,
				kind.doc+", "+q.Name+" of the probes that were answered"))
		}
	}
	return append(all,
		ofPath(RTTAdded, "round trip added by load", "ns", lower,
			"rtt_loaded_p50_ns - rtt_idle_p50_ns of the same path: what the load adds"),
		ofPath(ProbeLoss, "lost probes", "ratio", lower,
			"latency probes without an answer ÷ probes sent, under load"),
		ofPath(ProbeLossIdle, "lost probes, idle", "ratio", lower, "latency probes without an answer ÷ "+
			"probes sent, on the idle path"),
		ofPath(ProbeLate, "lateness of probes (p99)", "ns", lower,
			"delay with which probes were sent, 99th percentile: the tester's timer error"),
		ofPath(probeSpacing, "spacing error of probes (p99)", "ns", lower,
			"error of the interval between two probes, 99th percentile"),
		ofPath(Responsiveness, "responsiveness", "rpm", higher, "round trips per minute under load: the "+
			"mean of responsiveness_foreign_rpm and responsiveness_loaded_rpm "+
			"(draft-ietf-ippm-responsiveness, without TLS)"),
		ofPath(foreignRPM, "responsiveness of new connections", "rpm", higher,
			"60 s ÷ the mean of two trimmed means, measured on separate connections under load: the time "+
				"of a TCP handshake, and of a request with its response"),
		ofPath(loadedRPM, "responsiveness of loaded connections", "rpm", higher,
			"60 s ÷ the trimmed mean time of a request with its response on a connection that carries "+
				"the load"),
	)
}

func loadMetrics() []record.Metric {
	var all []record.Metric
	const end = "this end's machine, if each end has its own"
	for _, who := range []struct{ prefix, scope, doc string }{
		{record.HostNode, record.ScopeHost, "the machine that carries all nodes"},
		{"router", record.ScopeNode, "the router (of two, the near one), if it has its own cores"},
		{"client", record.ScopeNode, end}, {"server", record.ScopeNode, end},
	} {
		m := func(stem, label, unit, better, doc string) {
			if who.doc != end || slices.Contains(endStems, stem) {
				all = append(all, declared(who.scope, who.prefix+"_"+stem, label+" of the "+who.prefix, unit,
					better, who.doc+": "+doc))
			}
		}
		m(CPURatio, "CPU load", "ratio", lower,
			"share of the window in which cores were busy, mean of all cores")
		m(busiestCore, "busiest core", "ratio", lower, "share of the window in which the busiest core "+
			"was busy")
		m(softirqCore, "softirq load of a core", "ratio", lower,
			"share of the window that the core with the most softirq work spent in softirqs")
		m(StealRatio, "stolen CPU time", "ratio", lower,
			"share of the window that a hypervisor took away, mean of all cores")
		m(ForeignRatio, "CPU time of other processes", "ratio", lower,
			"CPU time of processes outside the lab ÷ the window, in cores")
		m(powerWatts, "power", "W", lower, "mean power in the window")
		m(Temperature, "temperature", "°C", lower, "highest temperature in the window")
		m(loopRate, "loop rate", "Hz", higher, "iterations per second of a fixed loop, median of short "+
			"samples on each core in turn; falls if a core is clocked down or loses time that no counter "+
			"shows")
	}

	const source = "from the run's meter, else from the router's own sensors, else from those of the " +
		"machine that carries all nodes"
	node := func(name, label, unit, better, doc string) record.Metric {
		return declared(record.ScopeNode, name, label, unit, better, doc)
	}
	all = append(all,
		node(PowerIdle, "power idle", "W", lower,
			"mean power while the path's idle latency is measured, "+source),
		node(PowerLoaded, "power under load", "W", lower,
			"mean power in the window, "+source+", else the condition watts of the plan"),
		node(PowerReadings, "power readings", "count", higher, "readings of the run's meter in the window"))
	return append(all, declared(record.ScopeHost, GuestsCPU, "CPU time of the guests", "ratio", lower,
		"CPU time of the threads of the lab's virtual machines ÷ the window, in cores of the host"),
		ofPath(EngineCPU, "CPU time of the load generator", "s", lower,
			"CPU time of the load generator's own processes in the window, both ends; without IRQ time "+
				"accounting in the kernel, interrupts and softirqs that ran meanwhile are included"))
}

func dropMetrics() []record.Metric {
	count := func(name, label, scope, doc string) record.Metric {
		return declared(scope, name, label, "count", lower, doc+", in the window")
	}
	offloaded := count(FlowsOffloaded, "offloaded connections", record.ScopeNode,
		"largest number of the routers' connections in a flow table, which bypass the rules")
	offloaded.Better = ""
	return []record.Metric{
		count(softnetDrops, "backlog drops", record.ScopeHost,
			"packets dropped because a core's backlog was full (column 2 of softnet_stat)"),
		count(SoftnetSqueeze, "time squeezes", record.ScopeHost,
			"times that a core's packet processing ran out of budget (column 3 of softnet_stat)"),
		count(interfaceDrops, "interface drops", record.ScopeNode,
			"packets that the routers' interfaces dropped"),
		count(qdiscDrops, "qdisc drops", record.ScopeNode,
			"packets that the routers' queueing disciplines dropped"),
		count(Fragments, "IP fragments", record.ScopeNode, "IP fragments that the routers created"),
		count(ConntrackUsed, "tracked connections", record.ScopeNode,
			"largest number of connections that the routers tracked"),
		count(conntrackDrops, "conntrack drops", record.ScopeNode, "packets that the routers' connection "+
			"tracking dropped, usually because its table was full"),
		offloaded,
		count(IPsecDrops, "IPsec drops", record.ScopeNode,
			"packets that the routers' IPsec dropped (/proc/net/xfrm_stat)"),
		declared(record.ScopeNode, KernelDrops, "kernel drops", "count", lower,
			"packets that the routers' kernels dropped for any reason (tracepoint skb:kfree_skb; the "+
				"samples show the reasons), in the window; only if the routers are machines of the lab"),
	}
}

// importedMetrics declares the metrics that only imported runs have.
func importedMetrics() []record.Metric {
	return []record.Metric{
		ofPath(RequestIdle, "idle request", "ns", lower, "time of a handshake or request without load, "+
			"as reported by a tool for the responsiveness draft"),
		ofPath(RequestLoaded, "request under load", "ns", lower,
			"time of a request under load, as reported by such a tool"),
		ofPath(Number, "number", "count", "", "a number from a column whose meaning the file does not state"),
	}
}

// RateOf returns the metric for a cell's rate: packets for UDP, payload for other traffic, or the speed of a
// cipher.
func RateOf(f record.Factors) string {
	if !factor.Sends(f) {
		return cipherRateOf(cipher.BlockFactor.Number(f))
	}

	if factor.Protocol.Is(f, factor.UDP) {
		return PacketRate
	}
	return Goodput
}

// LoadOf returns the kind of a cell's load, or "" for TCP streams. Rates of different kinds are not compared.
func LoadOf(f record.Factors) string {
	switch {
	case !factor.Sends(f):
		return "ciphers"
	case factor.Protocol.Is(f, factor.UDP):
		return "UDP packets"
	case factor.FlowSize.In(f):
		return "short flows"
	case factor.RequestSize.In(f):
		return "requests"
	}
	return ""
}

// Of returns the declaration of a metric. An undeclared metric has its name as label, and no unit.
func Of(name string) record.Metric {
	if m, ok := byName()[name]; ok {
		return m
	}
	return record.Metric{Name: name, Label: name}
}

var byName = sync.OnceValue(func() map[string]record.Metric {
	out := map[string]record.Metric{}
	for _, m := range Metrics() {
		out[m.Name] = m
	}
	return out
})

// Label returns the label of a metric for use in a sentence.
func Label(name string) string { return Of(name).Label }

// Say formats a value in the metric's unit, such as "26.9 ms".
func Say(name string, value float64) string {
	m := Of(name)
	if m.Unit != "" {
		return unit.ScaleOf(m.Unit, value).Text(value)
	}
	return unit.Significant(value, 3)
}

// Names of metrics.
const (
	Goodput          = "goodput_bps"
	GoodputUp        = "goodput_up_bps"
	GoodputDown      = "goodput_down_bps"
	PacketRate       = "packet_rate_pps"
	offeredRate      = "offered_rate_pps"
	LossRatio        = "loss_ratio"
	UnsentRatio      = "unsent_ratio"
	duplicates       = "duplicates"
	Reordered        = "reordered"
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
	RTTTCP         = "rtt_tcp_ns"
	MinRTTTCP      = "rtt_tcp_min_ns"
	BusyRatio      = "tcp_busy_ratio"
	RwndLimited    = "tcp_rwnd_limited_ratio"
	SndbufLimited  = "tcp_sndbuf_limited_ratio"
	NetworkLimited = "tcp_network_limited_ratio"

	RequestIdle   = "request_idle_ns"
	RequestLoaded = "request_loaded_p50_ns"
	Number        = "number"

	RTTIdle       = "rtt_idle_p50_ns"
	RTTLoaded     = "rtt_loaded_p50_ns"
	RTTLoadedP99  = "rtt_loaded_p99_ns"
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

	PowerIdle     = "power_idle_w"
	PowerLoaded   = "power_loaded_w"
	PowerReadings = "power_readings"
)

// Stems of metrics that exist for the host, and for routers with their own cores. The name of a metric is
// "host_" or "router_" followed by the stem.
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

var machineStems = []string{CPURatio, busiestCore, softirqCore, StealRatio, ForeignRatio, powerWatts,
	Temperature, loopRate}

// endStems lists the stems of metrics that may explain why an end of the path is slow. These metrics exist
// only if each end is a separate machine. Their names start with "client_" or "server_".
var endStems = []string{StealRatio, ForeignRatio, Temperature, loopRate}

// percentile is a quantile and its name in metrics.
type percentile struct {
	Name  string
	Level float64
}

var Percentiles = [...]percentile{{"p50", .5}, {"p90", .9}, {"p99", .99}, {"p999", .999}, {"p9999", .9999}}

// RTT returns the name of a percentile of round-trip times. kind is "idle" or "loaded".
func RTT(kind string, q percentile) string { return "rtt_" + kind + "_" + q.Name + "_ns" }

// flowPercentiles are the percentiles for flows and handshakes. Requests also have p99.9.
var flowPercentiles = Percentiles[:3]

// flowSizes lists the classes of flows by size.
var flowSizes = [...]struct{ name, words string }{
	{"small", "below 100 kB"}, {"medium", "of 100 kB or more, below 10 MB"}, {"large", "of 10 MB or more"},
}

func flowMetrics() []record.Metric {
	all := []record.Metric{ofPath(FlowRate, "flow rate", "flows/s", higher, "short flows, each on its "+
		"own TCP connection, that completed in the window, per second; engine flows")}
	times := func(label, doc string, name func(percentile) string, levels []percentile) {
		for _, q := range levels {
			all = append(all, ofPath(name(q), label+" ("+q.Name+")", "ns", lower,
				strings.Replace(doc, "PERCENTILE", q.Name, 1)))
		}
	}
	flow := func(what string) func(percentile) string {
		return func(q percentile) string { return FlowTime(what, q) }
	}
	times("TCP handshake", "duration of the TCP handshake, as the client sees it, PERCENTILE of the "+
		"flows started in the window", flow("connect"), flowPercentiles)
	times("flow completion", "flow completion time, from a flow's intended start to the last byte of "+
		"the answer, PERCENTILE of the flows due to start in the window; failed and unfinished flows "+
		"count as slower than all others", flow("completion"), flowPercentiles)
	for _, s := range flowSizes {
		times("completion of "+s.name+" flows", "completion time of flows "+s.words+", PERCENTILE",
			flow("completion_"+s.name), flowPercentiles)
	}

	all = append(all,
		ofPath(FlowFailed, "failed flows", "ratio", lower,
			"flows that were refused, reset or wrongly answered ÷ flows due to start in the window"),
		ofPath(flowUnfinished, "unfinished flows", "ratio", "",
			"flows that were not complete by the window's end ÷ flows due to start in it"),
		ofPath(flowLate, "lateness of flows (p99)", "ns", lower,
			"delay with which flows started, 99th percentile, if they start at a set rate: the tester "+
				"had no CPU time or no free connection"),
		ofPath(RequestRate, "request rate", "requests/s", higher, "requests whose response completed in "+
			"the window, per second, all connections together; engine requests"))
	times("request time", "time from sending a request to the last byte of its response, PERCENTILE of "+
		"the requests sent in the window", requestTime, Percentiles[:4])
	return all
}

const (
	FlowRate       = "flows_per_s"
	FlowFailed     = "flow_failed_ratio"
	flowUnfinished = "flow_unfinished_ratio"
	flowLate       = "flow_late_p99_ns"
	RequestRate    = "requests_per_s"
)

// FlowTime returns the name of a metric: a percentile of the times of short flows. what is "connect" or
// "completion".
func FlowTime(what string, q percentile) string { return "flow_" + what + "_" + q.Name + "_ns" }

func requestTime(q percentile) string { return "request_" + q.Name + "_ns" }
