package record

import (
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
)

// Search defines a search for the highest rate at which the goals are met, as in RFC 9971. Each row then has
// as many trials as its search needs.
type Search struct {
	Preset string  `json:"preset"` // name of the preset that the goals are based on
	Goals  []Goal  `json:"goals"`
	MinPPS float64 `json:"min_pps"`           // minimum load per interface, in packets per second
	MaxPPS float64 `json:"max_pps,omitempty"` // maximum load per interface; 0 means the tester's own maximum
	MinBps float64 `json:"min_bps"`           // minimum for searches of paced TCP
	MaxBps float64 `json:"max_bps,omitempty"`
	MinHz  float64 `json:"min_connections_hz,omitempty"` // minimum for searches of new connections
	MaxHz  float64 `json:"max_connections_hz,omitempty"`
	// Knob is the name of a setting, with its place, such as the rate of a shaper. The search uses values of
	// this setting as its loads, and TCP runs at full rate. If Knob is "", the load generator is paced.
	Knob    string        `json:"knob,omitempty"`
	Warmup  time.Duration `json:"warmup_trial_ns"` // length of an initial trial that does not count, or 0
	MaxTime time.Duration `json:"max_time_ns"`     // limit on the sum of effective durations
	// CountPauses includes the warm-up and the pause of each trial in the trial's effective duration.
	CountPauses bool `json:"count_pauses,omitempty"`
	// Latency, FrameLoss and BackToBack are further tests of RFC 2544. They run at the rate found for the
	// first goal or at the highest load. A nil test is not run.
	Latency    *Test `json:"latency,omitempty"`
	FrameLoss  *Test `json:"frame_loss,omitempty"`
	BackToBack *Test `json:"back_to_back,omitempty"`
}

// Goal describes a search goal. LossRatio, ExceedRatio, DurationSum, Width and the trial durations are the
// attributes of RFC 9971; the other fields are extensions.
type Goal struct {
	Name            string        `json:"name"`
	FinalDuration   time.Duration `json:"final_trial_duration_ns"`
	DurationSum     time.Duration `json:"duration_sum_ns"`
	LossRatio       float64       `json:"loss_ratio"`
	ExceedRatio     float64       `json:"exceed_ratio"`
	Width           float64       `json:"width"` // maximum of (upper bound - lower bound) ÷ upper bound
	InitialDuration time.Duration `json:"initial_trial_duration_ns"`
	// MaxDelay makes a trial a high-loss trial if the load adds a delay longer than MaxDelay. 0 means no
	// limit.
	MaxDelay time.Duration `json:"max_added_delay_ns,omitempty"`
	// Coarser is the number of coarser targets before the goal. Each has a shorter duration sum and twice the
	// width of the next target.
	Coarser int `json:"coarser_targets"`
	// Expansion is the factor by which an external search widens its steps until it has found its bound.
	Expansion int `json:"expansion"`
}

// TrialInput holds the load and the duration that a search requests for its next trial.
type TrialInput struct {
	Load     float64       `json:"load"`             // intended load, per interface and second
	Duration time.Duration `json:"duration_ns"`      // intended duration, excluding warm-up
	Warmup   bool          `json:"warmup,omitempty"` // the trial only warms up: it is not a result
}

// Test describes a test of RFC 2544 that follows the throughput test.
type Test struct {
	Duration time.Duration `json:"duration_ns"` // of each trial; for back-to-back, of the longest burst
	Repeats  int           `json:"repeats"`
}

// Tests to which a trial of a search can belong.
const (
	TestThroughput = "throughput"
	TestLatency    = "latency"
	TestFrameLoss  = "frame-loss"
	TestBackToBack = "back-to-back"
)

// SearchLimits holds the limits of the load per interface.
type SearchLimits struct {
	Unit string  `json:"unit"` // "pps", "bit/s" (TCP payload) or "flows/s"
	Min  float64 `json:"min"`
	Max  float64 `json:"max"`
	// Interfaces is the number of interfaces that are loaded at once. It is the total load ÷ the load per
	// interface.
	Interfaces int `json:"interfaces"`
}

// SearchTrial holds the input of a trial of a search, and the limits of the search.
type SearchTrial struct {
	SearchLimits
	TrialInput
	Test   string `json:"test"`
	Number int    `json:"number"` // number among the successful trials of its search, from 1
}

// Units of loads.
const (
	UnitPackets = "pps"
	UnitBits    = "bit/s"
	UnitFlows   = "flows/s" // new connections
)

// SearchUnit returns the unit of the load for searches of a cell.
func SearchUnit(f Factors) string {
	switch {
	case factor.Engine.Is(f, "flows"):
		return UnitFlows
	case factor.Protocol.Is(f, factor.TCP):
		return UnitBits
	}
	return UnitPackets
}

// Searches reports whether the rate of a row is searched for. This is not the case for a row whose load is a
// share of a measured rate.
func (d Design) Searches(a Assignment) bool {
	_, share := factor.FoundOf(a.Factors)
	return d.Method.Search != nil && a.Kind == RowLoad && !share
}
