package record

import (
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
)

// Search defines a search for the highest rate that meets its goals, by RFC 9971. A row then yields as many
// trials as it takes.
type Search struct {
	Preset string  `json:"preset"` // preset of the goals, before the plan's changes
	Goals  []Goal  `json:"goals"`
	MinPPS float64 `json:"min_pps"`           // lowest load of one interface
	MaxPPS float64 `json:"max_pps,omitempty"` // highest; 0 = the tester's own maximum
	MinBps float64 `json:"min_bps"`           // the same for paced TCP
	MaxBps float64 `json:"max_bps,omitempty"`
	MinHz  float64 `json:"min_connections_hz,omitempty"` // the same for new connections
	MaxHz  float64 `json:"max_connections_hz,omitempty"`
	// Knob is a setting, with its place, whose levels are the loads, such as the rate of a shaper, while TCP
	// runs at full rate; "" = the load generator is paced.
	Knob    string        `json:"knob,omitempty"`
	Warmup  time.Duration `json:"warmup_trial_ns"` // length of a first trial that does not count; 0 = none
	MaxTime time.Duration `json:"max_time_ns"`     // effective durations, all together
	// CountPauses includes warm-up and pause of each trial in its effective duration.
	CountPauses bool `json:"count_pauses,omitempty"`
	// Further tests of RFC 2544, at the rate found for the first goal or at the highest load; nil = not run.
	Latency    *Test `json:"latency,omitempty"`
	FrameLoss  *Test `json:"frame_loss,omitempty"`
	BackToBack *Test `json:"back_to_back,omitempty"`
}

// Goal is a search goal: the first six attributes, with the initial trial duration, are those of RFC 9971;
// the others are ours.
type Goal struct {
	Name            string        `json:"name"`
	FinalDuration   time.Duration `json:"final_trial_duration_ns"`
	DurationSum     time.Duration `json:"duration_sum_ns"`
	LossRatio       float64       `json:"loss_ratio"`
	ExceedRatio     float64       `json:"exceed_ratio"`
	Width           float64       `json:"width"` // maximum (upper - lower) ÷ upper bound
	InitialDuration time.Duration `json:"initial_trial_duration_ns"`
	// MaxDelay also makes a trial high-loss if the load adds more delay; 0 = no bound.
	MaxDelay time.Duration `json:"max_added_delay_ns,omitempty"`
	// Coarser counts the coarser targets that precede the goal, each with a shorter duration sum and twice
	// the width.
	Coarser int `json:"coarser_targets"`
	// Expansion widens the step of an external search that has not found its bound.
	Expansion int `json:"expansion"`
}

// TrialInput holds the load and the duration that a search requests for its next trial.
type TrialInput struct {
	Load     float64       `json:"load"`             // intended, of one interface, per second
	Duration time.Duration `json:"duration_ns"`      // intended, of the traffic that counts
	Warmup   bool          `json:"warmup,omitempty"` // warm-up only: not a result of the search
}

// Test is one of RFC 2544's tests after the throughput.
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

// SearchLimits bounds the loads of one interface in a search.
type SearchLimits struct {
	Unit string  `json:"unit"` // of loads: "pps", "bit/s" of TCP payload, or "flows/s"
	Min  float64 `json:"min"`
	Max  float64 `json:"max"`
	// Interfaces counts the interfaces that are loaded at once: the ratio of the load of all to the load of
	// one.
	Interfaces int `json:"interfaces"`
}

// SearchTrial holds what a search requested of a trial, and the limits that it observed.
type SearchTrial struct {
	SearchLimits
	TrialInput
	Test   string `json:"test"`
	Number int    `json:"number"` // from 1, among the successful trials of its search
}

// Units of a search's loads.
const (
	UnitPackets = "pps"
	UnitBits    = "bit/s"
	UnitFlows   = "flows/s" // new connections
)

// SearchUnit returns the unit of loads for searching a cell.
func SearchUnit(f Factors) string {
	switch {
	case factor.Engine.Is(f, "flows"):
		return UnitFlows
	case factor.Protocol.Is(f, factor.TCP):
		return UnitBits
	}
	return UnitPackets
}

// Searches reports whether a row's rate is searched for. A share of a rate to be found is offered without a
// search.
func (d Design) Searches(a Assignment) bool {
	_, share := factor.FoundOf(a.Factors)
	return d.Method.Search != nil && a.Kind == RowLoad && !share
}
