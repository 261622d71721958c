// Package record holds what is kept of a run: the design, its rows and trials, samples and the vocabulary
// common to several stages. It touches no machine, its methods depend only on their own value, and no type in
// it can contain a secret.
//
// Times inside a trial are nanoseconds of the controller's monotonic clock (CLOCK_MONOTONIC); Trial.Origin is
// the zero to subtract and Trial.Started relates it to wall time.
package record

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
)

// Format is the version of the stored and printed documents.
const Format = "chokepoint/1"

// Factors are the settings of one cell.
type Factors = factor.Cell

// Method describes how each row is measured and how often.
type Method struct {
	Duration time.Duration `json:"duration_ns"` // measured window
	Warmup   time.Duration `json:"warmup_ns"`   // load before it, excluded
	Cooldown time.Duration `json:"cooldown_ns"` // pause after the load has stopped
	Runs     int           `json:"runs"`        // blocks; with Adaptive: the maximum
	Adaptive *Adaptive     `json:"adaptive,omitempty"`
	Order    string        `json:"order"`             // "blocks" (randomised complete blocks) or "listed"
	Seed     uint64        `json:"seed,string"`       // drawn, stored and printed unless given
	Idle     time.Duration `json:"idle_ns,omitempty"` // length of an idle-latency measurement
	// total time of all windows of a cell; Runs follows from it
	Soak   time.Duration `json:"soak_ns,omitempty"`
	Search *Search       `json:"search,omitempty"` // searches for a rate; Duration is then unused
}

// Adaptive stops a cell once the interval of its goodput median is narrow.
type Adaptive struct {
	Min   int     `json:"min"`
	Max   int     `json:"max"`
	Width float64 `json:"width"` // full interval width ÷ median, 0.02 = 2 %
}

// Measure selects what is measured beside the load.
type Measure struct {
	// "block" (once per path and block), "trial" (before each) or "off"
	LatencyIdle   string `json:"latency_idle"`
	LatencyLoaded bool   `json:"latency_loaded"` // probe beside the load
	// latency probe: "echo" (UDP, also if absent) or "icmp"
	Probe         string        `json:"probe,omitempty"`
	ProbeInterval time.Duration `json:"probe_interval_ns"`
	// "isochronous" (also if absent) or "exponential", see Load.Spacing
	ProbeSpacing string `json:"probe_spacing,omitempty"`
	Verify       bool   `json:"verify"` // one short verified-content trial per run and path
	// also check the content of every load
	VerifyAll bool `json:"verify_all,omitempty"`
	Telemetry bool `json:"telemetry"` // probes on the nodes
}

// Validity stands in place of the metric in a requirement that a cell be valid.
const Validity = "validity"

// Requirement is a threshold: Metric Op Value, in cells that match Where. For Validity it requires
// valid cells, and has no Value.
type Requirement struct {
	Text   string  `json:"text"` // as written
	Metric string  `json:"metric"`
	Op     string  `json:"op"` // >=, >, <=, <
	Value  float64 `json:"value"`
	Where  Factors `json:"where,omitempty"`
}

// Step is something that a person must do; When is "start", "block" or "end".
type Step struct {
	When   string `json:"when"`
	Prompt string `json:"prompt"`
}

// Procedure describes how the cells of a plan are measured.
type Procedure struct {
	Method  Method   `json:"method"`
	Measure Measure  `json:"measure"`
	Set     []string `json:"set,omitempty"`
	Cuts    []string `json:"cuts,omitempty"` // what --for cut, in words
	// Loads lists the factors of the cells that describe the traffic; all others identify the path.
	Loads []string `json:"loads,omitempty"`
}

// Design is a parsed plan: everything that analysis needs to know about what was compared, so that an old
// run needs no re-parsing.
type Design struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Source      string `json:"source"` // file name or "built-in"
	Text        string `json:"text"`   // the plan as read
	// Device and Notes go to the head of each run of the plan.
	Device string   `json:"device,omitempty"`
	Notes  []string `json:"notes,omitempty"`
	Procedure
	Factors []FactorLevels `json:"factors"` // in the order written
	// cells that are run, in the order listed, after skips and cuts
	Cells []Factors `json:"cells,omitempty"`
	// the plan's labels: factor → level → label
	Labels       map[string]map[string]string `json:"labels,omitempty"`
	Hard         []string                     `json:"hard,omitempty"` // hard to change, outermost first
	Baseline     Factors                      `json:"baseline"`       // factors that identify it
	Requirements []Requirement                `json:"require,omitempty"`
	Conditions   map[string]string            `json:"conditions,omitempty"` // typed-in facts
	Steps        []Step                       `json:"steps,omitempty"`
	Skipped      []Skipped                    `json:"skipped,omitempty"` // by the plan's own rules
	Experiment   *Experiment                  `json:"experiment,omitempty"`

	// Catalogue explains the factors' names. It is not stored: readers of a run add this program's own. nil
	// stands for the factors of every plan.
	Catalogue *factor.Catalogue `json:"-"`
}

// FactorLevels is one factor of the matrix with its levels.
type FactorLevels struct {
	Name   string   `json:"name"`
	Levels []string `json:"levels"`
}

// Varied returns the factors of the matrix that have more than one level, in the order written.
func (d *Design) Varied() []FactorLevels {
	var varied []FactorLevels
	for _, f := range d.Factors {
		if len(f.Levels) > 1 {
			varied = append(varied, f)
		}
	}
	return varied
}

// Skipped is a cell that was not run, with the reason. ID and Label are those of the cell in a document.
type Skipped struct {
	ID      string  `json:"id,omitempty"`
	Label   string  `json:"label,omitempty"`
	Factors Factors `json:"factors"`
	Reason  string  `json:"reason"`
	Hint    string  `json:"hint,omitempty"` // how to make it possible
}

// Row kinds.
const (
	RowLoad   = "load"   // traffic of a cell
	RowIdle   = "idle"   // latency of an idle path, once per block
	RowVerify = "verify" // short trial that checks every byte
	RowCipher = "cipher" // speed of a node's cipher; nothing is sent
)

// Row is one line of the ordered list that a plan expands to.
type Row struct {
	ID string `json:"id"` // "b2-r07", unique in a run
	Assignment
}

// Assignment determines what a row measures, and when in the run.
type Assignment struct {
	Block   int     `json:"block"` // from 1
	Index   int     `json:"index"` // position in the run, from 1
	Kind    string  `json:"kind"`
	Factors Factors `json:"factors"`
}

// Cell returns the identity under which the row's trials are summarised.
func (a Assignment) Cell() string { return a.Factors.Key() }

// Setting is one factor that a knob applies, at a place.
type Setting struct {
	Knob  string `json:"knob"`
	Node  string `json:"node"`
	Port  string `json:"port,omitempty"` // device of the node
	Value string `json:"value"`
}

// Topology is the shape of a lab, and its parts.
type (
	Topology = factor.Shape
	TopoNode = factor.Node
	TopoLink = factor.Link
	TopoPort = factor.Port
)

// Caveat qualifies what it is attached to, and must appear on the page.
type Caveat struct {
	Kind string `json:"kind"` // stable word, such as "few-runs"
	Text string `json:"text"`
}

// Scope of a metric.
const (
	ScopeFlow = "flow" // one traffic flow
	ScopePath = "path" // near to far
	ScopeNode = "node" // of a single node: its namespace or machine
	ScopeHost = "host" // the machine that carries all nodes, shared by all roles
)

// Metric declares a quantity once: unit in the name, direction, scope.
type Metric struct {
	Name string `json:"name"` // goodput_bps, rtt_idle_p50_ns …
	// words for a sentence: "idle round trip (p50)"
	Label   string `json:"label,omitempty"`
	Unit    string `json:"unit"` // bit/s, pps, ns, ratio, count, bytes, Hz, W, °C
	Better  string `json:"better,omitempty"`
	Scope   string `json:"scope"`
	Counter bool   `json:"counter,omitempty"` // never decreases; show its rate
	Doc     string `json:"doc,omitempty"`     // meaning, with source
}

// Better directions of a Metric.
const (
	Higher = "higher"
	Lower  = "lower"
)

// Trial states.
const (
	TrialOK     = "ok"
	TrialFailed = "failed"
)

// TrialHead identifies a trial and its outcome.
type TrialHead struct {
	ID       string            `json:"id"` // "<row>.<attempt>"
	Started  time.Time         `json:"started"`
	Failure  *Failure          `json:"failure,omitempty"`
	Search   *SearchTrial      `json:"search,omitempty"` // for a trial of a search
	Phases   []Phase           `json:"phases"`
	Resolved map[string]string `json:"resolved,omitempty"` // e.g. tunnel → wireguard-userspace
	Path     *PathEvidence     `json:"path,omitempty"`
	Caveats  []Caveat          `json:"caveats,omitempty"`
}

// Trial is everything that one execution of a row recorded, as received.
type Trial struct {
	TrialHead
	Run     string   `json:"run"`
	Row     Row      `json:"row"`
	Attempt int      `json:"attempt"`
	Origin  int64    `json:"origin_ns"` // controller's monotonic clock at Started
	Ended   int64    `json:"ended_ns"`
	Status  string   `json:"status"`
	Window  Window   `json:"window"`
	Traffic *Traffic `json:"traffic,omitempty"`
	Cipher  *Cipher  `json:"cipher,omitempty"` // for a row of that kind
	Idle    *Latency `json:"idle,omitempty"`
	Loaded  *Latency `json:"loaded,omitempty"`
	Hops    []*Hop   `json:"hops,omitempty"` // for a path between machines
	// Boots lists the boots of routers that the run did not boot itself: guests of a lab that existed before.
	// A rebooted router counts as another router.
	Boots   map[string]string   `json:"boots,omitempty"`
	Nodes   map[string]NodeData `json:"nodes,omitempty"`
	Meter   *Samples            `json:"meter,omitempty"` // readings of the run's meter
	Foreign *Foreign            `json:"foreign,omitempty"`
}

// Failure gives the phase in which a trial failed, and the reason.
type Failure struct {
	Phase string `json:"phase"`
	Error string `json:"error"`
	Hint  string `json:"hint,omitempty"`
}

// Phase names, in order.
const (
	PhaseSetup   = "set-up"
	PhaseVerify  = "verify-path"
	PhaseIdle    = "idle-latency"
	PhaseWarmup  = "warm-up"
	PhaseWindow  = "window"
	PhaseDrain   = "drain"
	PhaseCollect = "collect"
)

// Phase is one part of a trial.
type Phase struct {
	Name  string `json:"name"`
	Start int64  `json:"start_ns"`
	End   int64  `json:"end_ns"`
}

// Window is the timeline of the load: it starts at Begin, counts from Start to End, and waits until Stop at
// the latest for data sent by End.
type Window struct {
	Begin int64 `json:"begin_ns"`
	Start int64 `json:"start_ns"`
	End   int64 `json:"end_ns"`
	Stop  int64 `json:"stop_ns"`
}

// Seconds returns the length of the measured window.
func (w Window) Seconds() float64 { return float64(w.End-w.Start) / 1e9 }

// Holds reports whether a time is in the window, its edges included.
func (w Window) Holds(at int64) bool { return at >= w.Start && at <= w.End }

// PathEvidence is the proof that traffic took the intended path.
type PathEvidence struct {
	Tunnel       string         `json:"tunnel"`
	PathMTU      int            `json:"path_mtu"`
	WantMTU      int            `json:"want_mtu"`
	BytesOffered int64          `json:"bytes_offered"` // payload bytes sent by the check
	Counters     []CounterDelta `json:"counters"`
	// CountedFrom is when the counters of "window" had been read, just before it began. Absent if only
	// counters of the whole load were read, as on a router without an agent.
	CountedFrom int64             `json:"counted_from_ns,omitempty"`
	Details     map[string]string `json:"details,omitempty"`
}

// Counters of a tunnel, in a CounterDelta; each of several tunnels side by side has its own, in the order in
// which streams use them.
const (
	TunnelSent     = "tunnel_sent_bytes"
	TunnelReceived = "tunnel_received_bytes"
)

// CounterDelta is a counter before and after the path check, before and after the whole load, or from the
// window's start until after the load.
type CounterDelta struct {
	Node    string `json:"node"`
	Device  string `json:"device"`
	Counter string `json:"counter"`
	Before  uint64 `json:"before"`
	After   uint64 `json:"after"`
	When    string `json:"when"` // "check", "window" or "load"
}

// Traffic directions: where the data goes. Up is from near to far.
const (
	Up   = factor.Up
	Down = factor.Down
	Both = factor.Both
)

// Traffic is an engine's report of one trial.
type Traffic struct {
	Engine  string              `json:"engine"`
	Version string              `json:"version,omitempty"`
	Load    Load                `json:"load"`
	Flows   []Flow              `json:"flows"`
	Ends    map[string]EndUsage `json:"ends"` // "near", "far"
	Raw     []byte              `json:"raw,omitempty"`
	Details map[string]string   `json:"details,omitempty"` // actual congestion control, buffers, mode
	Caveats []Caveat            `json:"caveats,omitempty"`
	// RateError is the rate sent ÷ the rate of the load, minus one; absent at full rate.
	RateError *float64 `json:"rate_error_ratio,omitempty"`
	OneWay    []OneWay `json:"one_way,omitempty"`

	Responsiveness *Responsiveness `json:"responsiveness,omitempty"`
	ShortFlows     *ShortFlows     `json:"short_flows,omitempty"`
}

// Flow is one stream in one direction. Byte counts are application payload; window counts cover Window, the
// others the flow's whole life.
type Flow struct {
	Stream        int      `json:"stream"`
	Direction     string   `json:"direction"`
	Local         string   `json:"local"`  // sender's address and port
	Remote        string   `json:"remote"` // receiver's
	SentBytes     int64    `json:"sent_bytes"`
	ReceivedBytes int64    `json:"received_bytes"`
	SenderNs      int64    `json:"sender_ns"`   // exact length of the window at the sender
	ReceiverNs    int64    `json:"receiver_ns"` // and at the receiver
	Packets       *Packets `json:"packets,omitempty"`
	TCP           *TCP     `json:"tcp,omitempty"`
	Sent          *Table   `json:"sent,omitempty"`     // column bytes (cumulative), packets
	Received      *Table   `json:"received,omitempty"` // column bytes (cumulative), packets
	Verified      int64    `json:"verified_bytes,omitempty"`
	Corrupt       int64    `json:"corrupt_bytes,omitempty"`
}

// Packets counts the datagrams of the measured window. Each carries whether it belongs to the window, so that
// the counts are exact: Sent = Received + Lost. What the counting mode cannot see is absent.
type Packets struct {
	Sent   int64 `json:"sent"`
	Unsent int64 `json:"unsent"` // intended by the rate but not sent
	// the engine does not count Unsent, which is 0
	UnsentUnknown bool   `json:"unsent_unknown,omitempty"`
	Received      int64  `json:"received"`             // without duplicates, if they can be recognised
	Lost          int64  `json:"lost"`                 // counted from gaps and the missing tail
	Duplicates    *int64 `json:"duplicates,omitempty"` // absent where datagrams are counted by length
	// arrived after a higher number (RFC 4737); absent if datagrams are counted by length
	Reordered *int64          `json:"reordered,omitempty"`
	Gaps      []Gap           `json:"gaps,omitempty"` // runs of lost packets, by length
	Delay     *DelayVariation `json:"delay_variation,omitempty"`
	// IP length of each; absent with packet_sizes
	Size int `json:"size,omitempty"`
}

// Gap counts runs of lost packets of one length. Above 1024 the length is rounded down to seven binary
// digits; Packets is the exact sum.
type Gap struct {
	Length  int64 `json:"length"`
	Gaps    int64 `json:"gaps"`
	Packets int64 `json:"packets"`
}

// DelayVariation is the distribution of one-way delays above the lowest of the window (RFC 5481, section 4.2:
// PDV). Datagrams that were passed to the kernel together share a send time.
type DelayVariation struct {
	Stamps string       `json:"stamps"` // of the arrivals: "kernel" or "user"
	Counts []DelayCount `json:"counts"`
}

// DelayCount is a bucket: packets that took at least this much longer than the fastest. Buckets are 64 ns
// wide, or a sixteenth of the delay.
type DelayCount struct {
	AboveNs int64 `json:"above_ns"`
	Packets int64 `json:"packets"`
}

// TCP is the sender's TCP_INFO over the window, and its series.
type TCP struct {
	Congestion    string `json:"congestion"`
	MSS           int    `json:"mss"`
	Retransmits   *int64 `json:"retransmits,omitempty"` // segments, in the window; nil is unknown
	BusyNs        int64  `json:"busy_ns"`               // from the kernel's chronographs, in the window
	RwndLimitedNs int64  `json:"rwnd_limited_ns"`
	SndbufLimitNs int64  `json:"sndbuf_limited_ns"`
	MinRTTNs      int64  `json:"min_rtt_ns"`
	ECN           bool   `json:"ecn,omitempty"`          // both ends agreed to use it
	DeliveredCE   int64  `json:"delivered_ce,omitempty"` // segments that arrived marked, in the window
	ReordSeen     int64  `json:"reord_seen,omitempty"`   // reorderings seen in the window
	DsackDups     int64  `json:"dsack_dups,omitempty"`   // segments that arrived twice, in the window
	// Options lists what both ends agreed on: "timestamps", "sack", "wscale"; nil is unknown.
	Options []string `json:"options,omitzero"`
	Series  *Table   `json:"series,omitempty"` // rtt_ns, rttvar_ns, cwnd_segments, retransmits, …
}

// EndUsage counts what an engine's own process used in the window.
type EndUsage struct {
	Node      string  `json:"node"`
	UserNs    int64   `json:"user_ns"`
	SystemNs  int64   `json:"system_ns"`
	ThreadsNs []int64 `json:"threads_ns,omitempty"` // user+system time of each thread that carries streams
	CPUs      []int   `json:"cpus,omitempty"`       // allowed cores
	// MemoryBytes is the peak resident size of the process, without the kernel's socket buffers.
	MemoryBytes int64 `json:"memory_bytes,omitempty"`
	NUMANodes   []int `json:"numa_nodes,omitempty"` // NUMA nodes of these cores
	// ThreadCPUs are the cores on which the streams' threads were at the window's end; -1 = unknown.
	ThreadCPUs []int `json:"thread_cpus,omitempty"`
	// EdgeLateNs is the maximum delay with which this, and the byte counts of TCP streams, were read at an
	// edge of the window.
	EdgeLateNs int64 `json:"edge_late_ns,omitempty"`
}

// NodeData holds the samples of one node's probes in one trial.
type NodeData struct {
	Clock   Clock     `json:"clock"`
	Samples []Samples `json:"samples"`
	Cost    []Cost    `json:"cost"`
	Log     []LogLine `json:"log,omitempty"` // kernel log lines during the trial
	Stalls  []Stall   `json:"stalls,omitempty"`
}

// Clock relates a node's monotonic clock to the controller's: node = controller + Offset, within ±Bound,
// before and after the trial.
type Clock struct {
	OffsetBefore int64 `json:"offset_before_ns"`
	BoundBefore  int64 `json:"bound_before_ns"`
	OffsetAfter  int64 `json:"offset_after_ns"`
	BoundAfter   int64 `json:"bound_after_ns"`
}

// Samples is the series of one probe: fast sources at 10 Hz, slow ones at 1 Hz, plus one sample at each edge
// of the window. A slow source without counters is sampled only at the beginning.
type Samples struct {
	Probe       string   `json:"probe"`
	Scope       string   `json:"scope"`
	Unavailable string   `json:"unavailable,omitempty"` // reason; then Table is nil
	Metrics     []Metric `json:"metrics,omitempty"`     // declarations of the columns' stems
	Table       *Table   `json:"table,omitempty"`
}

// Cost is the cost of observing, by the program's own accounting: that of the reads in the intervals between
// the first and the last sample.
type Cost struct {
	Probe  string `json:"probe"`
	Reads  int64  `json:"reads"`
	CPUNs  int64  `json:"cpu_ns"`  // thread CPU time of the reads
	OverNs int64  `json:"over_ns"` // length of the observation
	// MedianNs is the median of the reads. It is far below CPUNs ÷ Reads if the kernel charged the sampler
	// for interrupts.
	MedianNs int64 `json:"median_ns,omitempty"`
}

// Stall is a late sampler: a finding, not an error.
type Stall struct {
	At     int64 `json:"at_ns"`
	LateNs int64 `json:"late_ns"`
}

// LogLine is a kernel log record.
type LogLine struct {
	At       int64  `json:"at_ns"`
	Severity int    `json:"severity"` // syslog level, 0…7
	Text     string `json:"text"`
}

// Environment is a node's fingerprint, stored once per run.
type Environment struct {
	Node string `json:"node"`
	// kernel, cpu_model, cores, clocksource, governor, mitigations:…, sysctl:…
	Facts   map[string]string `json:"facts"`
	Missing map[string]string `json:"missing,omitempty"` // fact → why it is unknown
	// Inventory was read before the run changed anything there; absent if the node is not Linux.
	Inventory *Inventory `json:"inventory,omitempty"`
	// InventoryAfter was read after the last trial, while its settings applied.
	InventoryAfter *Inventory `json:"inventory_after,omitempty"`
}

// Ceiling is the rate of the tester alone, without a router.
type Ceiling struct {
	Kind  string  `json:"kind"` // "tcp direct, 4 streams", "udp loopback, 64-byte packets" …
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Note  string  `json:"note,omitempty"`

	TrafficKind
}

// Link determines the packets of a link; the zero value leaves a link as it is.
type Link struct {
	Offload string `json:"offload,omitempty"`  // as in the factor
	MTU     int    `json:"link_mtu,omitempty"` // bytes, above 1500
}

// TrafficKind is a kind of traffic whose ceiling is measured, and the link that carries it.
type TrafficKind struct {
	Engine   string `json:"engine,omitempty"` // "flows", "requests" or "xdp"; absent = native
	Protocol string `json:"protocol,omitempty"`
	Streams  int    `json:"streams,omitempty"`
	Link
	UDPMode    string `json:"udp_mode,omitempty"`    // "count"; absent = exact
	PacketSize int    `json:"packet_size,omitempty"` // IP length, UDP only
	// packets of the mix imix, instead of packet_size
	IMIX         bool   `json:"imix,omitempty"`
	FlowSize     string `json:"flow_size,omitempty"`     // as in the factor, engine flows only
	RequestSize  int    `json:"request_size,omitempty"`  // engine requests only
	ResponseSize int    `json:"response_size,omitempty"` // engine requests only
}

// WattsCondition names the condition with a mean power under load, read by hand.
const WattsCondition = "watts"

// LinkCondition names the condition that states the rate of the link under test, such as "1G".
const LinkCondition = "link"

// Watts returns the power in watts typed in as a condition, such as "6.1" or "6.1 W"; 0 if there is none.
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

// ShortFlows holds the measurements of the opener for many flows, each on its own TCP connection, or for
// requests on persistent connections. Each flow that started in the window is counted once: Started =
// Completed + Failed + Unfinished. Times of a flow run from its intended start.
type ShortFlows struct {
	Kept bool `json:"kept,omitempty"` // connections stay open: requests with their responses
	// requested rate of new connections; absent if each stream continues by itself
	RateHz     float64 `json:"rate_hz,omitempty"`
	Started    int64   `json:"started"`    // intended to start in the window
	Completed  int64   `json:"completed"`  // of these, by the window's end
	Failed     int64   `json:"failed"`     // refused, reset, wrongly answered
	Unfinished int64   `json:"unfinished"` // in progress, or not yet started, at the window's end
	// not connected within DueNs of the intended start, although the window left that time
	Tardy     int64            `json:"tardy,omitempty"`
	DueNs     int64            `json:"due_ns,omitempty"`
	Carried   int64            `json:"carried"`            // started before the window, completed in it
	Failures  map[string]int64 `json:"failures,omitempty"` // of those failed, by what happened
	Asked     int64            `json:"asked_bytes"`        // requested payload of the completed flows
	Confirmed int64            `json:"confirmed_bytes"`    // of these, bytes counted by the receiver
	// TCP handshakes of those started, from the call to the answer
	Connect []TimeCount `json:"connect"`
	Late    []TimeCount `json:"late"`    // how late each was started
	Classes []FlowClass `json:"classes"` // in ascending order of size
}

// FlowClass holds the flows of a range of sizes.
type FlowClass struct {
	FromBytes int64       `json:"from_bytes"` // up to the next class
	Started   int64       `json:"started"`
	Times     []TimeCount `json:"times"` // of completed ones
}

// TimeCount counts the flows that took at least FromNs, and less than a sixty-fourth (or 64 ns) more.
type TimeCount struct {
	FromNs int64 `json:"from_ns"`
	Flows  int64 `json:"flows"`
}

// OneWay holds the one-way delays of packets of the load itself, in one direction: those that carry their
// send time. It exists only if one clock gives both times.
type OneWay struct {
	Direction string        `json:"direction"`
	Counts    []DelayCounts `json:"counts"` // in ascending order
}

// DelayCounts counts the packets that took at least FromNs, and less than the next bucket's.
type DelayCounts struct {
	FromNs  int64 `json:"from_ns"`
	Packets int64 `json:"packets"`
}
