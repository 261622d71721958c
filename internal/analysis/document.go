// Package analysis turns stored trials into the document of a run: numbers with intervals, grades,
// comparisons and texts. It uses no files, network, clock or unseeded randomness, so the same input gives the
// same document. It combines the results of packages metrics, search, validity and comparison, none of which
// depends on it.
package analysis

import (
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/method"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/model"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Document holds everything that is shown about a run. It is the output of show --json and the input of the
// report. Code that prints a document computes no results.
type Document struct {
	Format      string               `json:"format"` // record.Format
	Run         RunHead              `json:"run"`
	Summary     []string             `json:"summary"` // sentences, most important first
	Environment []record.Environment `json:"environment"`
	Conditions  map[string]string    `json:"conditions,omitempty"`
	Topologies  []record.Topology    `json:"topologies"`
	// Ways describes the network between two machines, by IP version. It is absent for labs that chokepoint
	// builds.
	Ways []Way `json:"ways,omitempty"`
	// Paths holds the diagnosis of each path that was measured from both ends only, as in the plan blackbox.
	Paths   []diagnosis.Path   `json:"paths,omitempty"`
	Nodes   []record.NodeFacts `json:"nodes"`   // nodes of the topologies, with their properties
	Metrics []record.Metric    `json:"metrics"` // declarations of all metrics that occur
	// Verdicts names what limited the traffic, once for all cells with the same diagnosis.
	Verdicts []Verdict `json:"verdicts"`
	// Uses describes what the results mean for common uses of a router.
	Uses      []UseCase    `json:"uses"`
	Cells     []Cell       `json:"cells"`
	Searches  []SearchView `json:"searches,omitempty"` // one per row that searched for a rate
	Searching *Searching   `json:"searching,omitempty"`
	// Proof holds the result for the cause that the run tests, if the run is an experiment.
	Proof *diagnosis.Proof `json:"proof,omitempty"`
	// Proofs holds the results of experiments about causes that the diagnosis does not name, or no longer
	// names.
	Proofs []diagnosis.Proof `json:"proofs,omitempty"`
	// Ciphers holds the results of the cipher cells, by node.
	Ciphers []CipherNode `json:"ciphers,omitempty"`
	Scaling []Scaling    `json:"scaling,omitempty"` // growth with the number of streams, tunnels or CPUs
	Soaks   []Soak       `json:"soaks,omitempty"`
	// UnderLoad holds the effect of TCP on the latency of each path.
	UnderLoad   []UnderLoad             `json:"under_load,omitempty"`
	Comparisons []comparison.Comparison `json:"comparisons,omitempty"`
	// Effects holds the effect of each factor on goodput, if at least two factors vary.
	Effects    *model.Effects         `json:"effects,omitempty"`
	Thresholds []comparison.Threshold `json:"thresholds,omitempty"`
	Trials     []TrialView            `json:"trials"`
	Skipped    []record.Skipped       `json:"skipped"`
	Tester     []record.Ceiling       `json:"tester,omitempty"` // ceilings of the tester alone
	Observing  Observing              `json:"observing"`
	Caveats    []record.Caveat        `json:"caveats,omitempty"` // caveats about the whole run

	Catalogue *factor.Catalogue `json:"-"` // meanings of the factors' names
	Series    *record.Series    `json:"-"` // series of alternating runs that contains this run
	Sampled   []TrialSamples    `json:"-"` // samples of the cells' trials, for comparisons with other runs
}

// RunHead identifies a run and how it was measured.
type RunHead struct {
	record.RunHead
	Plan        string `json:"plan"`
	Description string `json:"description,omitempty"`
	record.Procedure
}

// Emulated reports whether a router of the run was emulated, so that no number describes a real device.
func (d *Document) Emulated() bool {
	return slices.ContainsFunc(d.Caveats, func(c record.Caveat) bool { return c.Kind == "emulated" })
}

// Cell is the summary of all trials of one combination of levels.
type Cell struct {
	metrics.Cell

	Ceiling CellCeiling `json:"ceiling"`
	// OfBaseline is the cell's rate as a share of its baseline's rate.
	OfBaseline *Share `json:"of_baseline,omitempty"`
	// OfDefaultMTU is the cell's rate as a share of the rate with the default MTU, if several MTUs were
	// measured.
	OfDefaultMTU *Share `json:"of_default_mtu,omitempty"`

	Consistency *Consistency       `json:"consistency,omitempty"`
	Findings    []evidence.Finding `json:"findings"`
	// GeneratorShare is the load generator's share of the CPU time, if the router runs on the same machine.
	GeneratorShare float64              `json:"generator_share,omitempty"`
	Diagnosis      *diagnosis.Diagnosis `json:"diagnosis,omitempty"` // what limited the traffic
	Caveats        []record.Caveat      `json:"caveats,omitempty"`
	Resolved       map[string]string    `json:"resolved,omitempty"`
	Runs           int                  `json:"runs"`   // trials with numbers
	Failed         int                  `json:"failed"` // trials without numbers

	Latency map[string]Distribution `json:"latency,omitempty"` // "idle" or "loaded" → probes of all trials
	// Segments lists the parts of a path between machines whose routers answered probes, from near to far.
	Segments []Segment `json:"segments,omitempty"`
}

// Unchecked reports whether a threshold was not checked because the run ended before its cell.
func (d *Document) Unchecked(t comparison.Threshold) bool {
	return t.Validity == evidence.GradeNotReached && d.Run.Status != record.RunDone
}

// Distribution holds all round-trip times of a cell in one histogram, and how they were measured. The
// percentiles among the metrics are exact, because they are computed from the stored samples. The histogram
// is for other programs, and for merging.
type Distribution struct {
	Probe    string   `json:"probe"`              // "echo" (UDP) or "icmp"
	Stamps   []string `json:"stamps"`             // "kernel" or "user"; both if trials differ
	Includes []string `json:"includes,omitempty"` // points between which the round trips were measured
	Spacing  string   `json:"spacing"`
	Sent     int64    `json:"sent"`
	Lost     int64    `json:"lost"`
	Beyond   int64    `json:"beyond"` // answered probes whose time is outside the histogram's range
	// HDR is an HdrHistogram in ns (encoding V2, compressed, base64), from 1 to 10¹¹ with three significant
	// digits.
	HDR string `json:"hdr"`
}

// UnderLoad describes the latency of one path while TCP loads it, by direction of the data. Grade rates the
// mean of the delays that up and down add, if both were measured.
type UnderLoad struct {
	Factors    record.Factors        `json:"factors"` // factors of the cells, without the direction
	Label      string                `json:"label"`
	Directions map[string]LoadedPath `json:"directions"` // keys are "up", "down" and "both"
	AddedNs    float64               `json:"added_ns,omitempty"`
	// AddedInNoise reports that the load added no more delay than the idle path's own variation, in any
	// direction.
	AddedInNoise bool   `json:"added_in_noise,omitempty"`
	Grade        string `json:"grade,omitempty"`
}

// LoadedPath describes the latency of a path loaded in one direction, or in both.
type LoadedPath struct {
	Cell    record.Factors `json:"cell"`
	AddedNs *float64       `json:"added_ns,omitempty"` // rtt_added_p50_ns
	// AddedInNoise reports that AddedNs does not exceed the idle path's own variation.
	AddedInNoise bool     `json:"added_in_noise,omitempty"`
	Grade        string   `json:"grade,omitempty"` // bufferbloat grade
	RPM          *float64 `json:"rpm,omitempty"`   // responsiveness_rpm
	Band         string   `json:"band,omitempty"`  // "poor", "fair", "good", "excellent"
	Confidence   string   `json:"confidence,omitempty"`
	Why          string   `json:"why,omitempty"` // reason why RPM is missing
}

// CellCeiling holds the upper bounds that the result is compared with.
type CellCeiling struct {
	Kind  string  `json:"kind"`            // such as "none: virtual link" or "tbf 300M on router/wan"
	Bps   float64 `json:"bps,omitempty"`   // ceiling of goodput; 0 means none
	Ratio float64 `json:"ratio,omitempty"` // median ÷ ceiling
	// HeaderEfficiency is payload ÷ wire bytes for this MTU and encapsulation.
	HeaderEfficiency float64 `json:"header_efficiency"`
	TesterRatio      float64 `json:"tester_ratio,omitempty"` // median ÷ tester's ceiling
	TesterKind       string  `json:"tester_kind,omitempty"`
}

// Consistency rates how even the throughput was within the windows.
type Consistency struct {
	Word  string  `json:"word"`  // "Very good", "Good", "Fair", "Poor"
	Ratio float64 `json:"ratio"` // unevenness, see docs/method/validity.md
}

// Searching describes the method of all searches of a run, as RFC 9971 requires for a report.
type Searching struct {
	Preset     string        `json:"preset"`
	Goals      []record.Goal `json:"goals"`
	Notes      []string      `json:"notes"`      // meaning of the numbers: units, effective duration, width
	Deviations []string      `json:"deviations"` // deviations from RFC 2544
}

// SearchView is the result of one search, which consists of the trials of one row. Loads are per interface.
type SearchView struct {
	Row     string         `json:"row"`
	Block   int            `json:"block"`
	Factors record.Factors `json:"factors"`
	Label   string         `json:"label"`
	Ended   bool           `json:"ended"`         // false if the results are preliminary
	Why     string         `json:"why,omitempty"` // why the search did not end
	record.SearchLimits
	Results []SearchResult `json:"results"` // one per goal, in the order of the goals
	Steps   []SearchStep   `json:"steps"`
	Trials  int            `json:"trials"` // trials of the search for the rate, including warm-up trials
	Failed  int            `json:"failed"` // trials without a result
	Seconds float64        `json:"seconds"`
	// EffectiveSeconds is the sum of the effective durations of the trials.
	EffectiveSeconds float64      `json:"effective_seconds"`
	Latency          []LatencyAt  `json:"latency,omitempty"`
	FrameLoss        []FrameLoss  `json:"frame_loss,omitempty"`
	BackToBack       []BackToBack `json:"back_to_back,omitempty"`
}

// SearchResult holds the result for one goal, and values derived from its trials.
type SearchResult struct {
	method.Result
	// ThroughputBps is the conditional throughput of all interfaces together, in payload bits per second.
	ThroughputBps *float64 `json:"conditional_throughput_bps,omitempty"`
	// UnsentShare is the share of the missing frames at the upper bound that the generator never sent. Above
	// one half, the search found the limit of the tester instead of the path.
	UnsentShare float64 `json:"unsent_share"`
	// Bursts is the number of trials at the upper bound that lost too many frames and in which the sender's
	// bursts exceeded a policer's bucket.
	Bursts int `json:"burst_trials,omitempty"`
}

// SearchStep is one trial of a search.
type SearchStep struct {
	Trial     string  `json:"trial"`
	Test      string  `json:"test"`
	Load      float64 `json:"load"`
	Seconds   float64 `json:"seconds"` // intended duration
	LossRatio float64 `json:"loss_ratio"`
	AddedNs   float64 `json:"added_p99_ns,omitempty"` // set only if a goal limits it
	Warmup    bool    `json:"warmup,omitempty"`
}

// LatencyAt holds the round-trip time at a share of the rate that the search found, over all repetitions.
type LatencyAt struct {
	Share float64           `json:"share"`
	Load  float64           `json:"load"`
	P50   *statistics.Value `json:"rtt_p50_ns,omitempty"`
	P99   *statistics.Value `json:"rtt_p99_ns,omitempty"`
	Loss  statistics.Value  `json:"loss_ratio"`
}

// FrameLoss holds the loss at one load, over all repetitions.
type FrameLoss struct {
	Share float64          `json:"share"` // share of the highest load
	Load  float64          `json:"load"`
	Loss  statistics.Value `json:"loss_ratio"`
}

// BackToBack holds the longest burst that was forwarded without loss, over all repetitions (RFC 2544, section
// 26.4), and the buffer that it implies (RFC 9004).
type BackToBack struct {
	Frames *statistics.Value `json:"frames,omitempty"` // absent if no burst was forwarded without loss
	// Limited reports whether longer bursts lost frames. If not, the buffer may be larger.
	Limited bool `json:"limited"`
	// Rate is the actual rate of the burst in packets per second: the highest load, or the tester's maximum.
	Rate float64 `json:"rate_pps,omitempty"`
	// BufferSeconds is Frames ÷ Rate. CorrectedSeconds subtracts the frames that were forwarded during the
	// burst: it is BufferSeconds × (1 - throughput ÷ Rate), or 0 if the tester sends no faster than the
	// throughput.
	BufferSeconds    float64  `json:"implied_buffer_s,omitempty"`
	CorrectedSeconds *float64 `json:"corrected_buffer_s,omitempty"`
}

// TrialView is one trial in the form that a document shows. Its phases are relative to its start, and its
// caveats include the caveats of its traffic.
type TrialView struct {
	record.TrialHead
	Row string `json:"row"`
	record.Assignment
	Seconds float64           `json:"seconds"` // duration of the whole trial
	Grade   string            `json:"grade"`
	Reasons []evidence.Reason `json:"reasons"`
	// Unchecked lists the checks that could not be made because data is missing.
	Unchecked []evidence.Unchecked `json:"unchecked,omitempty"`
	Metrics   map[string]float64   `json:"metrics,omitempty"`
	Missing   map[string]string    `json:"missing,omitempty"`
	Series    *Series              `json:"series,omitempty"`
}

// Series holds the data for the charts of one trial. Times are in seconds since the start of the window. A
// null is a missing value.
type Series struct {
	T       []float64             `json:"t_s"`
	Goodput []float64             `json:"goodput_bps,omitempty"`
	Cores   map[string][]*float64 `json:"cores,omitempty"` // "host/cpu0" → busy ratio at T
	RTT     []RTTPoint            `json:"rtt,omitempty"`
	// Quantile holds the quantiles "idle" and "loaded" at QuantileLevels.
	Quantile map[string][]float64 `json:"quantiles_ns,omitempty"`
}

// RTTPoint is one point of a latency chart, which shows only some of the samples.
type RTTPoint struct {
	T  float64 `json:"t_s"`
	NS float64 `json:"ns"`
}

// QuantileLevels lists the levels of Series.Quantile. Its last levels are omitted if there are too few probes
// for them.
var QuantileLevels = []float64{0, .01, .05, .1, .25, .5, .75, .9, .95, .99, .999, .9999}

// Observing holds the cost of observing the nodes. For each probe, the program multiplies the median CPU time
// of a read by the number of reads. The kernel charges more to the sampler's threads, because it includes
// interrupts and stolen time that occur while they run. ChargedRatio is that larger figure.
type Observing struct {
	CoreRatio    float64 `json:"core_ratio"`    // all probes of all nodes, as a share of one core
	ChargedRatio float64 `json:"charged_ratio"` // the same, as charged by the kernel
	// FastRatio sums the five fast probes, each on the node where it costs most.
	FastRatio float64            `json:"fast_ratio"`
	Probes    map[string]float64 `json:"probes"` // probe → share of one core, summed over all nodes
}
