// Package analysis turns stored trials into the document of a run: numbers with intervals, grades,
// comparisons and sentences. It is pure: no files, no network, no clock, no unseeded randomness, and the same
// input gives the same document. Data flows one way: this package joins what metrics, search, validity and
// comparison compute, and none of them calls back.
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

// Document is everything shown of a run: the output of show --json, from which the report is drawn. Nothing
// is recomputed for printing.
type Document struct {
	Format      string               `json:"format"` // record.Format
	Run         RunHead              `json:"run"`
	Summary     []string             `json:"summary"` // in words, most important first
	Environment []record.Environment `json:"environment"`
	Conditions  map[string]string    `json:"conditions,omitempty"`
	Topologies  []record.Topology    `json:"topologies"`
	// Ways describes what lies between two machines, by version of IP; absent for labs of our own.
	Ways []Way `json:"ways,omitempty"`
	// Paths holds what both ends alone reveal about each path that was probed as by plan blackbox.
	Paths   []diagnosis.Path   `json:"paths,omitempty"`
	Nodes   []record.NodeFacts `json:"nodes"`   // of the topologies, with their properties
	Metrics []record.Metric    `json:"metrics"` // declarations of every metric that occurs
	// Verdicts names what held the traffic back, once for all cells with the same finding.
	Verdicts []Verdict `json:"verdicts"`
	// Uses says what the results mean for usual uses of a router.
	Uses      []UseCase    `json:"uses"`
	Cells     []Cell       `json:"cells"`
	Searches  []SearchView `json:"searches,omitempty"` // one per row that searched for a rate
	Searching *Searching   `json:"searching,omitempty"`
	// Proof holds the outcome for the finding that the run tests, if it is an experiment.
	Proof *diagnosis.Proof `json:"proof,omitempty"`
	// Proofs holds the outcomes for findings of this run that are not (or no longer) among the causes.
	Proofs []diagnosis.Proof `json:"proofs,omitempty"`
	// Ciphers holds the results of the cells of engine cipher, by node.
	Ciphers []CipherNode `json:"ciphers,omitempty"`
	Scaling []Scaling    `json:"scaling,omitempty"` // with streams, tunnels or CPUs
	Soaks   []Soak       `json:"soaks,omitempty"`
	// how TCP affects the latency of each path
	UnderLoad   []UnderLoad             `json:"under_load,omitempty"`
	Comparisons []comparison.Comparison `json:"comparisons,omitempty"`
	// Effects holds the effect of each factor on the goodput, if two or more vary.
	Effects    *model.Effects         `json:"effects,omitempty"`
	Thresholds []comparison.Threshold `json:"thresholds,omitempty"`
	Trials     []TrialView            `json:"trials"`
	Skipped    []record.Skipped       `json:"skipped"`
	Tester     []record.Ceiling       `json:"tester,omitempty"` // what the tester alone can do
	Observing  Observing              `json:"observing"`
	Caveats    []record.Caveat        `json:"caveats,omitempty"` // of the whole run

	Catalogue *factor.Catalogue `json:"-"` // what the factors' names mean
	Series    *record.Series    `json:"-"` // of runs in turn that the run belongs to
	Sampled   []TrialSamples    `json:"-"` // of the trials of cells, for comparisons with other runs
}

// RunHead identifies a run and how it was measured.
type RunHead struct {
	record.RunHead
	Plan        string `json:"plan"`
	Description string `json:"description,omitempty"`
	record.Procedure
}

// Emulated reports whether a router of the run was emulated: then none of its numbers are those of a device.
func (d *Document) Emulated() bool {
	return slices.ContainsFunc(d.Caveats, func(c record.Caveat) bool { return c.Kind == "emulated" })
}

// Cell is the summary of all trials of one combination of factors.
type Cell struct {
	metrics.Cell

	Ceiling CellCeiling `json:"ceiling"`
	// OfBaseline is the rate as a share of the baseline's.
	OfBaseline *Share `json:"of_baseline,omitempty"`
	// OfDefaultMTU is the rate as a share of that with the default MTU, where several were measured.
	OfDefaultMTU *Share `json:"of_default_mtu,omitempty"`

	Consistency *Consistency       `json:"consistency,omitempty"`
	Findings    []evidence.Finding `json:"findings"`
	// GeneratorShare is the load generator's part of the CPU time of a machine that also carries the router.
	GeneratorShare float64              `json:"generator_share,omitempty"`
	Diagnosis      *diagnosis.Diagnosis `json:"diagnosis,omitempty"` // what held the traffic back
	Caveats        []record.Caveat      `json:"caveats,omitempty"`
	Resolved       map[string]string    `json:"resolved,omitempty"`
	Runs           int                  `json:"runs"`   // trials with numbers
	Failed         int                  `json:"failed"` // trials without

	Latency map[string]Distribution `json:"latency,omitempty"` // "idle", "loaded": all probes of all trials
	// Segments lists the parts of a path between machines, near to far, whose routers answered probes.
	Segments []Segment `json:"segments,omitempty"`
}

// Unchecked reports that a requirement was not checked, because the run was cut short before its cell.
func (d *Document) Unchecked(t comparison.Threshold) bool {
	return t.Validity == evidence.GradeNotReached && d.Run.Status != record.RunDone
}

// Distribution holds all round trips of a cell in one histogram, and how they were timed. The percentiles
// among the metrics are exact, from the stored single times; this is for other programs, and for merging.
type Distribution struct {
	Probe    string   `json:"probe"`              // "echo" (UDP) or "icmp"
	Stamps   []string `json:"stamps"`             // "kernel", "user", or both, in different trials
	Includes []string `json:"includes,omitempty"` // endpoints between which a round trip was timed
	Spacing  string   `json:"spacing"`
	Sent     int64    `json:"sent"`
	Lost     int64    `json:"lost"`
	Beyond   int64    `json:"beyond"` // answered, but outside the histogram's range
	// HdrHistogram, encoding V2 compressed, base64: ns, 1 to 10¹¹, three digits
	HDR string `json:"hdr"`
}

// UnderLoad describes the latency of one path under TCP, by the direction of the data. Grade rates the mean
// delay added by up and down, if both were measured.
type UnderLoad struct {
	Factors    record.Factors        `json:"factors"` // of its cells, without the direction
	Label      string                `json:"label"`
	Directions map[string]LoadedPath `json:"directions"` // "up", "down", "both"
	AddedNs    float64               `json:"added_ns,omitempty"`
	// AddedInNoise reports that in neither direction the load added more than the idle path's own variation.
	AddedInNoise bool   `json:"added_in_noise,omitempty"`
	Grade        string `json:"grade,omitempty"`
}

// LoadedPath describes the latency of a path loaded in one direction, or in both at once.
type LoadedPath struct {
	Cell    record.Factors `json:"cell"`
	AddedNs *float64       `json:"added_ns,omitempty"` // rtt_added_p50_ns
	// AddedInNoise reports that AddedNs does not exceed the idle path's own variation.
	AddedInNoise bool     `json:"added_in_noise,omitempty"`
	Grade        string   `json:"grade,omitempty"` // of bufferbloat
	RPM          *float64 `json:"rpm,omitempty"`   // responsiveness_rpm
	Band         string   `json:"band,omitempty"`  // "poor", "fair", "good", "excellent"
	Confidence   string   `json:"confidence,omitempty"`
	Why          string   `json:"why,omitempty"` // why there is no rpm
}

// CellCeiling holds the bounds with which the result is compared.
type CellCeiling struct {
	Kind  string  `json:"kind"`            // "none: virtual link", "tbf 300M on router/wan", "nic 1G" …
	Bps   float64 `json:"bps,omitempty"`   // goodput ceiling; 0 = none
	Ratio float64 `json:"ratio,omitempty"` // median ÷ ceiling
	// payload ÷ wire bytes at this MTU and encapsulation
	HeaderEfficiency float64 `json:"header_efficiency"`
	TesterRatio      float64 `json:"tester_ratio,omitempty"` // median ÷ tester's own ceiling
	TesterKind       string  `json:"tester_kind,omitempty"`
}

// Consistency rates how even the throughput was inside the windows.
type Consistency struct {
	Word  string  `json:"word"`  // "Very good", "Good", "Fair", "Poor"
	Ratio float64 `json:"ratio"` // the statistic, defined in docs/method/validity.md
}

// Searching describes how all searches of a run were made, as RFC 9971 requires of a report.
type Searching struct {
	Preset     string        `json:"preset"`
	Goals      []record.Goal `json:"goals"`
	Notes      []string      `json:"notes"`      // what the numbers mean: units, effective duration, width
	Deviations []string      `json:"deviations"` // from RFC 2544
}

// SearchView is the outcome of one search: the trials of one row. Loads are of one interface.
type SearchView struct {
	Row     string         `json:"row"`
	Block   int            `json:"block"`
	Factors record.Factors `json:"factors"`
	Label   string         `json:"label"`
	Ended   bool           `json:"ended"`         // otherwise the results are preliminary
	Why     string         `json:"why,omitempty"` // reason why it did not end
	record.SearchLimits
	Results []SearchResult `json:"results"` // one per goal, in their order
	Steps   []SearchStep   `json:"steps"`
	Trials  int            `json:"trials"` // of the search for the rate, including warm-up trials
	Failed  int            `json:"failed"` // which have no result
	Seconds float64        `json:"seconds"`
	// EffectiveSeconds is the sum of the trials' effective durations.
	EffectiveSeconds float64      `json:"effective_seconds"`
	Latency          []LatencyAt  `json:"latency,omitempty"`
	FrameLoss        []FrameLoss  `json:"frame_loss,omitempty"`
	BackToBack       []BackToBack `json:"back_to_back,omitempty"`
}

// SearchResult adds, to the outcome for one goal, what follows from its trials.
type SearchResult struct {
	method.Result
	// ThroughputBps is the conditional throughput of all interfaces in bits of payload.
	ThroughputBps *float64 `json:"conditional_throughput_bps,omitempty"`
	// UnsentShare is the share of the frames missing at the upper bound that the generator never sent: above
	// one half, the limit found is the tester's, not the path's.
	UnsentShare float64 `json:"unsent_share"`
	// Bursts counts trials at the upper bound that lost too many frames and in which the sender sent bursts
	// larger than a policer's bucket.
	Bursts int `json:"burst_trials,omitempty"`
}

// SearchStep is one trial of a search.
type SearchStep struct {
	Trial     string  `json:"trial"`
	Test      string  `json:"test"`
	Load      float64 `json:"load"`
	Seconds   float64 `json:"seconds"` // intended
	LossRatio float64 `json:"loss_ratio"`
	AddedNs   float64 `json:"added_p99_ns,omitempty"` // if a goal bounds it
	Warmup    bool    `json:"warmup,omitempty"`
}

// LatencyAt is the round-trip time at a share of the found rate, of all repeats.
type LatencyAt struct {
	Share float64           `json:"share"`
	Load  float64           `json:"load"`
	P50   *statistics.Value `json:"rtt_p50_ns,omitempty"`
	P99   *statistics.Value `json:"rtt_p99_ns,omitempty"`
	Loss  statistics.Value  `json:"loss_ratio"`
}

// FrameLoss is the loss at one load, of all repeats.
type FrameLoss struct {
	Share float64          `json:"share"` // of the greatest load
	Load  float64          `json:"load"`
	Loss  statistics.Value `json:"loss_ratio"`
}

// BackToBack is the longest burst that was forwarded whole, over the repeats (RFC 2544, section 26.4), and
// the implied buffer (RFC 9004).
type BackToBack struct {
	Frames *statistics.Value `json:"frames,omitempty"` // absent: none was forwarded whole
	// longer bursts were not; otherwise the buffer may be larger
	Limited bool `json:"limited"`
	// Rate is the number of packets actually sent per second: the greatest load, or what the tester reached.
	Rate float64 `json:"rate_pps,omitempty"`
	// BufferSeconds is frames ÷ Rate; CorrectedSeconds subtracts what was forwarded meanwhile: × (1 -
	// throughput ÷ Rate), 0 if the tester sends no faster than that.
	BufferSeconds    float64  `json:"implied_buffer_s,omitempty"`
	CorrectedSeconds *float64 `json:"corrected_buffer_s,omitempty"`
}

// TrialView is one trial as shown: its phases are relative to its start, and its caveats include those of its
// traffic.
type TrialView struct {
	record.TrialHead
	Row string `json:"row"`
	record.Assignment
	Seconds float64           `json:"seconds"` // whole trial
	Grade   string            `json:"grade"`
	Reasons []evidence.Reason `json:"reasons"`
	// Unchecked lists the checks for which this trial lacked data.
	Unchecked []evidence.Unchecked `json:"unchecked,omitempty"`
	Metrics   map[string]float64   `json:"metrics,omitempty"`
	Missing   map[string]string    `json:"missing,omitempty"`
	Series    *Series              `json:"series,omitempty"`
}

// Series holds the data of one trial's charts. Times are seconds since the window's start; null means no
// value.
type Series struct {
	T       []float64             `json:"t_s"`
	Goodput []float64             `json:"goodput_bps,omitempty"`
	Cores   map[string][]*float64 `json:"cores,omitempty"` // "host/cpu0" → busy ratio at T
	RTT     []RTTPoint            `json:"rtt,omitempty"`
	// "idle", "loaded": at the levels of QuantileLevels
	Quantile map[string][]float64 `json:"quantiles_ns,omitempty"`
}

// RTTPoint is a thinned latency sample for a chart.
type RTTPoint struct {
	T  float64 `json:"t_s"`
	NS float64 `json:"ns"`
}

// QuantileLevels are the levels of Series.Quantile; levels that the number of probes cannot support are
// omitted at the end.
var QuantileLevels = []float64{0, .01, .05, .1, .25, .5, .75, .9, .95, .99, .999, .9999}

// Observing holds the cost of observing, by the program's own accounting: the median of each source's reads,
// times their number. The thread time charged by the kernel also includes interrupts served and time stolen
// by a hypervisor while a sampler ran; ChargedRatio is that larger figure.
type Observing struct {
	CoreRatio    float64 `json:"core_ratio"`    // all probes of all nodes, share of one core
	ChargedRatio float64 `json:"charged_ratio"` // the same as charged by the kernel
	// the five fast sources once each, on the node where each costs most
	FastRatio float64            `json:"fast_ratio"`
	Probes    map[string]float64 `json:"probes"` // probe → share of one core, all nodes
}
