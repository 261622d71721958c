// Package record defines the stored data of a run: the design, its rows, trials and samples, and the
// vocabulary that several stages share. The package does not access any machine. Methods depend only on
// their receivers. No type can contain a secret.
//
// Times in a trial are nanoseconds of the controller's CLOCK_MONOTONIC. Trial.Origin is the value of that
// clock at the wall time Trial.Started.
package record

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
)

// Format is the version of stored and printed documents.
const Format = "chokepoint/1"

// Factors holds the levels of one cell.
type Factors = factor.Cell

// Method describes how, and how often, each row is measured.
type Method struct {
	Duration time.Duration `json:"duration_ns"` // length of the measured window
	Warmup   time.Duration `json:"warmup_ns"`   // duration of the load before the window, not measured
	Cooldown time.Duration `json:"cooldown_ns"` // duration of the pause after the load
	Runs     int           `json:"runs"`        // number of blocks; with Adaptive, the maximum
	Adaptive *Adaptive     `json:"adaptive,omitempty"`
	Order    string        `json:"order"`             // "blocks" (randomised complete blocks) or "listed"
	Seed     uint64        `json:"seed,string"`       // drawn at random unless given
	Idle     time.Duration `json:"idle_ns,omitempty"` // length of an idle latency measurement
	// Soak is the total length of the windows of a cell. It determines Runs.
	Soak   time.Duration `json:"soak_ns,omitempty"`
	Search *Search       `json:"search,omitempty"` // search for a rate; Duration is then unused
}

// Adaptive ends the measurement of a cell when the confidence interval of the cell's median goodput is
// narrow enough.
type Adaptive struct {
	Min   int     `json:"min"`
	Max   int     `json:"max"`
	Width float64 `json:"width"` // width of the interval ÷ median; 0.02 means 2 %
}

// Measure selects what is measured in addition to the load.
type Measure struct {
	// LatencyIdle says when idle latency is measured: "block" (once per path and block), "trial" (before each
	// trial) or "off".
	LatencyIdle   string `json:"latency_idle"`
	LatencyLoaded bool   `json:"latency_loaded"` // measure latency during the load
	// Probe is the latency probe: "echo" (UDP; also if the field is absent) or "icmp".
	Probe         string        `json:"probe,omitempty"`
	ProbeInterval time.Duration `json:"probe_interval_ns"`
	// ProbeSpacing is "isochronous" (also if the field is absent) or "exponential"; see Load.Spacing.
	ProbeSpacing string `json:"probe_spacing,omitempty"`
	Verify       bool   `json:"verify"` // run one short trial with verified content per path
	// VerifyAll is set if the content of every load is verified too.
	VerifyAll bool `json:"verify_all,omitempty"`
	Telemetry bool `json:"telemetry"` // read telemetry on the nodes
	// NoCeiling is set if the maximum rates of the tester alone are not measured.
	NoCeiling bool `json:"no_tester_ceiling,omitempty"`
}

// Validity stands in place of the metric in a requirement that cells be valid.
const Validity = "validity"

// Requirement is a threshold, "Metric Op Value", for cells that match Where. With the metric Validity, it
// requires cells to be valid and has no Value.
type Requirement struct {
	Text   string  `json:"text"` // text of the requirement in the plan
	Metric string  `json:"metric"`
	Op     string  `json:"op"` // >=, >, <=, <
	Value  float64 `json:"value"`
	Where  Factors `json:"where,omitempty"`
}

// Step is an instruction to the user. When is "start", "block" or "end".
type Step struct {
	When   string `json:"when"`
	Prompt string `json:"prompt"`
}

// Procedure describes how the cells of a plan are measured.
type Procedure struct {
	Method  Method   `json:"method"`
	Measure Measure  `json:"measure"`
	Set     []string `json:"set,omitempty"`
	Cuts    []string `json:"cuts,omitempty"` // descriptions of what the option --for omitted
	// Loads lists the factors that describe the traffic. All other factors describe the path.
	Loads []string `json:"loads,omitempty"`
}

// Design is a parsed plan. It contains everything that the analysis needs, so that the plan of an old run
// need not be parsed again.
type Design struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Source      string `json:"source"` // file name or "built-in"
	Text        string `json:"text"`   // text of the plan as read
	// Device and Notes are copied to the head of each run of the plan.
	Device string   `json:"device,omitempty"`
	Notes  []string `json:"notes,omitempty"`
	Procedure
	Factors []FactorLevels `json:"factors"` // in the order of the plan
	// Cells lists the cells to run, in the order of the plan, without skipped and omitted cells.
	Cells []Factors `json:"cells,omitempty"`
	// Labels contains labels from the plan, by factor and level.
	Labels       map[string]map[string]string `json:"labels,omitempty"`
	Hard         []string                     `json:"hard,omitempty"` // hard factors, outermost first
	Baseline     Factors                      `json:"baseline"`       // levels that identify the baseline
	Requirements []Requirement                `json:"require,omitempty"`
	Conditions   map[string]string            `json:"conditions,omitempty"` // facts typed in by the user
	Steps        []Step                       `json:"steps,omitempty"`
	Skipped      []Skipped                    `json:"skipped,omitempty"` // cells skipped by rules of the plan
	Experiment   *Experiment                  `json:"experiment,omitempty"`

	// Catalogue declares the factors. It is not stored: a reader sets it to the catalogue of its own version.
	// If Catalogue is nil, only the factors that every plan has are declared.
	Catalogue *factor.Catalogue `json:"-"`
}

// FactorLevels holds a factor of the matrix and its levels.
type FactorLevels struct {
	Name   string   `json:"name"`
	Levels []string `json:"levels"`
}

// Varied returns the factors of the matrix with more than one level, in the order of the plan.
func (d *Design) Varied() []FactorLevels {
	var varied []FactorLevels
	for _, f := range d.Factors {
		if len(f.Levels) > 1 {
			varied = append(varied, f)
		}
	}
	return varied
}

// Skipped describes a cell that was not run, with the reason. ID and Label identify the cell in a document.
type Skipped struct {
	ID      string  `json:"id,omitempty"`
	Label   string  `json:"label,omitempty"`
	Factors Factors `json:"factors"`
	Reason  string  `json:"reason"`
	Hint    string  `json:"hint,omitempty"` // advice on how to make the cell possible
}

// Row kinds.
const (
	RowLoad   = "load"   // traffic of a cell
	RowIdle   = "idle"   // latency of a path without load, once per block
	RowVerify = "verify" // short trial that verifies every byte
	RowCipher = "cipher" // speed of a cipher on one node, without traffic
)

// Row is one entry in the ordered list to which a plan expands.
type Row struct {
	ID string `json:"id"` // id that is unique in a run, such as "b2-r07"
	Assignment
}

// Assignment says what a row measures, and where it is in the run.
type Assignment struct {
	Block   int     `json:"block"` // number of the block, from 1
	Index   int     `json:"index"` // position in the run, from 1
	Kind    string  `json:"kind"`
	Factors Factors `json:"factors"`
}

// Cell returns the key of the cell whose results include the trials of this row.
func (a Assignment) Cell() string { return a.Factors.Key() }

// Setting is a value that a knob applies at a place.
type Setting struct {
	Knob  string `json:"knob"`
	Node  string `json:"node"`
	Port  string `json:"port,omitempty"` // name of the device on the node
	Value string `json:"value"`
}

// Topology is the shape of a lab. Its parts are TopoNode, TopoLink and TopoPort.
type (
	Topology = factor.Shape
	TopoNode = factor.Node
	TopoLink = factor.Link
	TopoPort = factor.Port
)

// Caveat describes a limitation of the item to which it is attached. Reports must show it.
type Caveat struct {
	Kind string `json:"kind"` // stable identifier, such as "few-runs"
	Text string `json:"text"`
}

// Scopes of a metric.
const (
	ScopeFlow = "flow" // one flow
	ScopePath = "path" // from near to far
	ScopeNode = "node" // a single node: its namespace or machine
	ScopeHost = "host" // the machine that runs all nodes
)

// Metric declares a quantity. It has a name that ends in the unit, a scope and a meaning.
type Metric struct {
	Name string `json:"name"` // goodput_bps, rtt_idle_p50_ns …
	// Label names the metric within a sentence, such as "idle round trip (p50)".
	Label   string `json:"label,omitempty"`
	Unit    string `json:"unit"` // bit/s, pps, ns, ratio, count, bytes, Hz, W, °C
	Better  string `json:"better,omitempty"`
	Scope   string `json:"scope"`
	Counter bool   `json:"counter,omitempty"` // never decreases; reports show its rate
	Doc     string `json:"doc,omitempty"`     // meaning and source
}

// Values of Metric.Better.
const (
	Higher = "higher"
	Lower  = "lower"
)

// Trial states.
const (
	TrialOK     = "ok"
	TrialFailed = "failed"
)

// TrialHead holds the id and the outcome of a trial.
type TrialHead struct {
	ID       string            `json:"id"` // "<row>.<attempt>"
	Started  time.Time         `json:"started"`
	Failure  *Failure          `json:"failure,omitempty"`
	Search   *SearchTrial      `json:"search,omitempty"` // only for trials of a search
	Phases   []Phase           `json:"phases"`
	Resolved map[string]string `json:"resolved,omitempty"` // level actually used, by factor, such as tunnel
	Path     *PathEvidence     `json:"path,omitempty"`
	Caveats  []Caveat          `json:"caveats,omitempty"`
}

// Trial holds all data recorded in one execution of a row, unprocessed.
type Trial struct {
	TrialHead
	Run     string   `json:"run"`
	Row     Row      `json:"row"`
	Attempt int      `json:"attempt"`
	Origin  int64    `json:"origin_ns"` // controller's CLOCK_MONOTONIC at Started
	Ended   int64    `json:"ended_ns"`
	Status  string   `json:"status"`
	Window  Window   `json:"window"`
	Traffic *Traffic `json:"traffic,omitempty"`
	Cipher  *Cipher  `json:"cipher,omitempty"` // for rows of kind RowCipher
	Idle    *Latency `json:"idle,omitempty"`
	Loaded  *Latency `json:"loaded,omitempty"`
	Hops    []*Hop   `json:"hops,omitempty"` // for paths without a tunnel
	// Boots contains the boot ids of routers that the run did not boot itself, in a lab that existed before
	// the run. A router that has been rebooted counts as a different router.
	Boots   map[string]string   `json:"boots,omitempty"`
	Nodes   map[string]NodeData `json:"nodes,omitempty"`
	Meter   *Samples            `json:"meter,omitempty"` // readings of the power meter
	Foreign *Foreign            `json:"foreign,omitempty"`
}

// Failure holds the error of a failed trial, and the phase in which it failed.
type Failure struct {
	Phase string `json:"phase"`
	Error string `json:"error"`
	Hint  string `json:"hint,omitempty"`
}

// Names of the phases of a trial, in order.
const (
	PhaseSetup   = "set-up"
	PhaseVerify  = "verify-path"
	PhaseIdle    = "idle-latency"
	PhaseWarmup  = "warm-up"
	PhaseWindow  = "window"
	PhaseDrain   = "drain"
	PhaseCollect = "collect"
)

// Phase describes one part of a trial.
type Phase struct {
	Name  string `json:"name"`
	Start int64  `json:"start_ns"`
	End   int64  `json:"end_ns"`
}

// Window holds the times of a load. The load begins at Begin and is measured from Start to End. Afterwards,
// the engine waits for data sent before End, until Stop at the latest.
type Window struct {
	Begin int64 `json:"begin_ns"`
	Start int64 `json:"start_ns"`
	End   int64 `json:"end_ns"`
	Stop  int64 `json:"stop_ns"`
}

// Seconds returns the length of the measured window.
func (w Window) Seconds() float64 { return float64(w.End-w.Start) / 1e9 }

// Holds reports whether a time is in the window, which includes Start and End.
func (w Window) Holds(at int64) bool { return at >= w.Start && at <= w.End }

// PathEvidence holds evidence that the traffic took the intended path.
type PathEvidence struct {
	Tunnel       string         `json:"tunnel"`
	PathMTU      int            `json:"path_mtu"`
	WantMTU      int            `json:"want_mtu"`
	BytesOffered int64          `json:"bytes_offered"` // payload bytes that the check sent
	Counters     []CounterDelta `json:"counters"`
	// CountedFrom is the time, just before the window, by which the counters with When "window" had been
	// read. It is absent if counters were read only for the whole load, as on a router without an agent.
	CountedFrom int64             `json:"counted_from_ns,omitempty"`
	Details     map[string]string `json:"details,omitempty"`
}

// Counters of a tunnel, for CounterDelta. Each of several parallel tunnels has its own counters, in the order
// in which streams use the tunnels.
const (
	TunnelSent     = "tunnel_sent_bytes"
	TunnelReceived = "tunnel_received_bytes"
)

// CounterDelta holds two values of a counter. They are from before and after the path check ("check"), from
// before and after the whole load ("load"), or from the start of the window and after the load ("window").
type CounterDelta struct {
	Node    string `json:"node"`
	Device  string `json:"device"`
	Counter string `json:"counter"`
	Before  uint64 `json:"before"`
	After   uint64 `json:"after"`
	When    string `json:"when"` // "check", "window" or "load"
}

// Directions of the data. Up is from near to far.
const (
	Up   = factor.Up
	Down = factor.Down
	Both = factor.Both
)

// Traffic holds an engine's report about one trial.
type Traffic struct {
	Engine  string              `json:"engine"`
	Version string              `json:"version,omitempty"`
	Load    Load                `json:"load"`
	Flows   []Flow              `json:"flows"`
	Ends    map[string]EndUsage `json:"ends"` // "near", "far"
	Raw     []byte              `json:"raw,omitempty"`
	Details map[string]string   `json:"details,omitempty"` // actual congestion control, buffers, mode
	Caveats []Caveat            `json:"caveats,omitempty"`
	// RateError is the ratio of the sent rate to the requested rate, minus one. It is absent if the load is
	// at full rate.
	RateError *float64 `json:"rate_error_ratio,omitempty"`
	OneWay    []OneWay `json:"one_way,omitempty"`

	Responsiveness *Responsiveness `json:"responsiveness,omitempty"`
	ShortFlows     *ShortFlows     `json:"short_flows,omitempty"`
}

// Flow describes one stream in one direction. SentBytes and ReceivedBytes count application payload in the
// window. Verified, Corrupt and the series cover the whole life of the flow.
type Flow struct {
	Stream        int      `json:"stream"`
	Direction     string   `json:"direction"`
	Local         string   `json:"local"`  // address and port of the sender
	Remote        string   `json:"remote"` // address and port of the receiver
	SentBytes     int64    `json:"sent_bytes"`
	ReceivedBytes int64    `json:"received_bytes"`
	SenderNs      int64    `json:"sender_ns"`   // exact length of the window at the sender
	ReceiverNs    int64    `json:"receiver_ns"` // exact length of the window at the receiver
	Packets       *Packets `json:"packets,omitempty"`
	TCP           *TCP     `json:"tcp,omitempty"`
	Sent          *Table   `json:"sent,omitempty"`     // columns bytes and packets, cumulative
	Received      *Table   `json:"received,omitempty"` // columns bytes and packets, cumulative
	Verified      int64    `json:"verified_bytes,omitempty"`
	Corrupt       int64    `json:"corrupt_bytes,omitempty"`
}

// Packets holds the counts of the datagrams that belong to the window. Each datagram is marked as
// belonging to the window or not, so the counts are exact: Sent = Received + Lost. Fields that the
// counting mode cannot determine are absent.
type Packets struct {
	Sent   int64 `json:"sent"`
	Unsent int64 `json:"unsent"` // number of packets required by the rate, but not sent
	// UnsentUnknown is set if the engine does not count Unsent.
	UnsentUnknown bool   `json:"unsent_unknown,omitempty"`
	Received      int64  `json:"received"`             // number without duplicates, if these can be detected
	Lost          int64  `json:"lost"`                 // missing in the sequence or at the end
	Duplicates    *int64 `json:"duplicates,omitempty"` // absent if datagrams are counted by length
	// Reordered counts datagrams received after a higher number (RFC 4737). It is absent if datagrams are
	// counted by length.
	Reordered *int64          `json:"reordered,omitempty"`
	Gaps      []Gap           `json:"gaps,omitempty"` // runs of consecutive lost packets, by length
	Delay     *DelayVariation `json:"delay_variation,omitempty"`
	// Size is the IP length of each packet in bytes. It is absent with packet_sizes.
	Size int `json:"size,omitempty"`
}

// Gap counts the loss gaps of one length. A loss gap is a run of consecutive lost packets. Lengths above 1024
// are rounded down to seven significant bits. Packets is the exact number of packets in these gaps.
type Gap struct {
	Length  int64 `json:"length"`
	Gaps    int64 `json:"gaps"`
	Packets int64 `json:"packets"`
}

// DelayVariation holds the distribution of the one-way delays, relative to the minimum delay in the window
// (PDV of RFC 5481, section 4.2). Datagrams that were passed to the kernel together have the same send time.
type DelayVariation struct {
	Stamps string       `json:"stamps"` // source of the arrival times: "kernel" or "user"
	Counts []DelayCount `json:"counts"`
}

// DelayCount is a bucket of the distribution. It holds the number of packets whose delay exceeds the
// minimum by at least AboveNs. The width of a bucket is 64 ns or a sixteenth of the delay.
type DelayCount struct {
	AboveNs int64 `json:"above_ns"`
	Packets int64 `json:"packets"`
}

// TCP holds values of the sender's TCP_INFO for the window, and a series of them.
type TCP struct {
	Congestion    string `json:"congestion"`
	MSS           int    `json:"mss"`
	Retransmits   *int64 `json:"retransmits,omitempty"` // retransmitted in the window; nil means unknown
	BusyNs        int64  `json:"busy_ns"`               // time spent sending in the window (tcpi_busy_time)
	RwndLimitedNs int64  `json:"rwnd_limited_ns"`
	SndbufLimitNs int64  `json:"sndbuf_limited_ns"`
	MinRTTNs      int64  `json:"min_rtt_ns"`
	ECN           bool   `json:"ecn,omitempty"`          // both ends agreed to use ECN
	DeliveredCE   int64  `json:"delivered_ce,omitempty"` // segments received with a CE mark, in the window
	ReordSeen     int64  `json:"reord_seen,omitempty"`   // reorderings detected in the window
	DsackDups     int64  `json:"dsack_dups,omitempty"`   // segments received twice, in the window
	// Options lists the TCP options that both ends agreed on: "timestamps", "sack", "wscale". It is nil if
	// the options are unknown.
	Options []string `json:"options,omitzero"`
	Series  *Table   `json:"series,omitempty"` // columns rtt_ns, rttvar_ns, cwnd_segments, retransmits, …
}

// EndUsage holds the resource usage of an engine's process in the window.
type EndUsage struct {
	Node      string  `json:"node"`
	UserNs    int64   `json:"user_ns"`
	SystemNs  int64   `json:"system_ns"`
	ThreadsNs []int64 `json:"threads_ns,omitempty"` // user+system time of each thread that carries streams
	CPUs      []int   `json:"cpus,omitempty"`       // cores that the process may use
	// MemoryBytes is the peak resident set size of the process. It excludes the kernel's socket buffers.
	MemoryBytes int64 `json:"memory_bytes,omitempty"`
	NUMANodes   []int `json:"numa_nodes,omitempty"` // NUMA nodes of the cores in CPUs
	// ThreadCPUs lists the cores on which the streams' threads ran at the end of the window; -1 means that
	// the core is unknown.
	ThreadCPUs []int `json:"thread_cpus,omitempty"`
	// EdgeLateNs is the maximum delay in reading this usage and the byte counts of TCP streams at the start
	// or end of the window.
	EdgeLateNs int64 `json:"edge_late_ns,omitempty"`
}

// NodeData holds the samples of a node's probes in one trial.
type NodeData struct {
	Clock   Clock     `json:"clock"`
	Samples []Samples `json:"samples"`
	Cost    []Cost    `json:"cost"`
	Log     []LogLine `json:"log,omitempty"` // lines of the kernel log during the trial
	Stalls  []Stall   `json:"stalls,omitempty"`
}

// Clock relates a node's monotonic clock to the controller's, before and after the trial: node =
// controller + offset ± bound.
type Clock struct {
	OffsetBefore int64 `json:"offset_before_ns"`
	BoundBefore  int64 `json:"bound_before_ns"`
	OffsetAfter  int64 `json:"offset_after_ns"`
	BoundAfter   int64 `json:"bound_after_ns"`
}

// Samples holds the series of one probe. Fast sources are sampled at 10 Hz and slow sources at 1 Hz. All are
// also sampled at the start and end of the window, except that a slow source without counters is not sampled
// at the end.
type Samples struct {
	Probe       string   `json:"probe"`
	Scope       string   `json:"scope"`
	Unavailable string   `json:"unavailable,omitempty"` // reason why Table is nil
	Metrics     []Metric `json:"metrics,omitempty"`     // declarations of the stems of the columns
	Table       *Table   `json:"table,omitempty"`
}

// Cost holds the cost of the observation between the first and the last sample, as measured by the
// program.
type Cost struct {
	Probe  string `json:"probe"`
	Reads  int64  `json:"reads"`
	CPUNs  int64  `json:"cpu_ns"`  // CPU time of the reading thread
	OverNs int64  `json:"over_ns"` // length of the observation
	// MedianNs is the median CPU time of a read. It is far below CPUNs ÷ Reads if the kernel charged the time
	// of interrupts to the sampler.
	MedianNs int64 `json:"median_ns,omitempty"`
}

// Stall records that a sample was taken late. The delay is an observation, not an error.
type Stall struct {
	At     int64 `json:"at_ns"`
	LateNs int64 `json:"late_ns"`
}

// LogLine holds a line of the kernel log.
type LogLine struct {
	At       int64  `json:"at_ns"`
	Severity int    `json:"severity"` // syslog severity, 0 to 7
	Text     string `json:"text"`
}

// Environment holds the facts about a node, stored once per run.
type Environment struct {
	Node string `json:"node"`
	// Facts has keys such as kernel, cpu_model, cores, clocksource, mitigations:…, sysctl:… and governor.
	Facts   map[string]string `json:"facts"`
	Missing map[string]string `json:"missing,omitempty"` // reason for each missing fact, keyed by name
	// Inventory was read before the run changed anything on the node. It is absent if the node does not run
	// Linux.
	Inventory *Inventory `json:"inventory,omitempty"`
	// InventoryAfter was read after the last trial, while the settings of that trial were still applied.
	InventoryAfter *Inventory `json:"inventory_after,omitempty"`
}

// Ceiling describes the highest rate of the tester alone, without a router.
type Ceiling struct {
	Kind  string  `json:"kind"` // "tcp direct, 4 streams", "udp loopback, 64-byte packets" …
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Note  string  `json:"note,omitempty"`

	TrafficKind
}

// Link holds the offloads and the MTU of a link. The zero value leaves the link unchanged.
type Link struct {
	Offload string `json:"offload,omitempty"`  // level of the offload factor
	MTU     int    `json:"link_mtu,omitempty"` // MTU in bytes if above 1500; otherwise 0
}

// TrafficKind describes a kind of traffic whose ceiling is measured, and the link that carries it.
type TrafficKind struct {
	Engine   string `json:"engine,omitempty"` // "flows", "requests" or "xdp"; absent for the native engine
	Protocol string `json:"protocol,omitempty"`
	Streams  int    `json:"streams,omitempty"`
	Link
	UDPMode    string `json:"udp_mode,omitempty"`    // "count"; absent means exact
	PacketSize int    `json:"packet_size,omitempty"` // IP length in bytes, UDP only
	// IMIX is set if packets have the IMIX sizes instead of PacketSize.
	IMIX         bool   `json:"imix,omitempty"`
	FlowSize     string `json:"flow_size,omitempty"`     // level of flow_size, only for the flows engine
	RequestSize  int    `json:"request_size,omitempty"`  // bytes, only for the requests engine
	ResponseSize int    `json:"response_size,omitempty"` // bytes, only for the requests engine
}

// WattsCondition is the name of the condition that states the mean power under load in watts, as the user
// read it.
const WattsCondition = "watts"

// LinkCondition is the name of the condition that states the rate of the link under test, such as "1G".
const LinkCondition = "link"

// Watts returns the power in watts from the condition WattsCondition, such as "6.1" or "6.1 W". It returns
// 0 if the condition is not set.
func (d *Design) Watts() (float64, error) {
	text, ok := d.Conditions[WattsCondition]
	if !ok {
		return 0, nil
	}

	w, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(text, "W")), 64)
	if err != nil || !(w > 0) || math.IsInf(w, 0) {
		return 0, fmt.Errorf("condition %s: %q is not a power in watts", WattsCondition, text)
	}

	return w, nil
}

// ShortFlows holds measurements of many flows, each on its own TCP connection, or of requests on persistent
// connections. The end that opens the connections makes the measurements. Each flow that is due in the window
// is counted once: Started = Completed + Failed + Unfinished. Times count from the scheduled start of a flow.
type ShortFlows struct {
	Kept bool `json:"kept,omitempty"` // the connections stayed open for further requests
	// RateHz is the requested rate of new connections. It is absent if each stream starts a connection when
	// the previous one has ended.
	RateHz     float64 `json:"rate_hz,omitempty"`
	Started    int64   `json:"started"`    // flows due to start in the window
	Completed  int64   `json:"completed"`  // flows completed before the end of the window
	Failed     int64   `json:"failed"`     // flows refused, reset, or answered wrongly
	Unfinished int64   `json:"unfinished"` // flows in progress or not yet started at the end of the window
	// Tardy counts flows that did not connect within DueNs of their scheduled start although the window
	// lasted long enough.
	Tardy     int64            `json:"tardy,omitempty"`
	DueNs     int64            `json:"due_ns,omitempty"`
	Carried   int64            `json:"carried"`            // flows begun before the window and ended in it
	Failures  map[string]int64 `json:"failures,omitempty"` // failed flows, by kind of failure
	Asked     int64            `json:"asked_bytes"`        // payload requested by the completed flows
	Confirmed int64            `json:"confirmed_bytes"`    // bytes of Asked that the receiver counted
	// Connect holds TCP handshake times of flows in Started, from the call to the answer.
	Connect []TimeCount `json:"connect"`
	Late    []TimeCount `json:"late"`    // delay of the actual start
	Classes []FlowClass `json:"classes"` // classes in ascending order of size
}

// FlowClass holds the flows whose size is in a range.
type FlowClass struct {
	FromBytes int64       `json:"from_bytes"` // start of the range, which ends at the next class
	Started   int64       `json:"started"`
	Times     []TimeCount `json:"times"` // durations of completed flows
}

// TimeCount holds the number of flows whose time is in a bucket. The bucket starts at FromNs, and its width
// is 1/64 of that or 64 ns.
type TimeCount struct {
	FromNs int64 `json:"from_ns"`
	Flows  int64 `json:"flows"`
}

// OneWay holds the one-way delays of the load's own packets in one direction, for packets that carry their
// send time. It is present only if send and arrival times are from the same clock.
type OneWay struct {
	Direction string        `json:"direction"`
	Counts    []DelayCounts `json:"counts"` // buckets in ascending order of delay
}

// DelayCounts holds the number of packets whose delay is at least FromNs and less than FromNs of the next
// bucket.
type DelayCounts struct {
	FromNs  int64 `json:"from_ns"`
	Packets int64 `json:"packets"`
}
