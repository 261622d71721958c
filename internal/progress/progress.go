// Package progress shows a run while it is in progress. It renders a stream of events as a live view on a
// terminal, as plain lines, or as JSON lines. It does not measure, compute results or decide anything.
//
// The renderers read these fields of an event, by kind:
//
//	run-started    Run, Text (plan), Data (the design, for its cells)
//	lab            Text (what is being set up, checked or undone)
//	step           the sender asks the user for something
//	trial-started  Row, Index, Total, Cell, Text (kind of the row), PPS or Rate (of a search), Left
//	phase          Phase, Text (for long steps before the first trial), Left, Data (the design, if changed)
//	rate           Rate and PPS, Cores
//	latency        RTT, Text ("idle" or "loaded")
//	trial-ended    Row, Index, Cell, Status, Rate, PPS, RTT, Text (why it failed), Left
//	warning        Text
//	run-ended      Status, Text
//
// They read Cores, Left and Total from any event that has them.
package progress

import "github.com/chokepoint-lab/chokepoint/internal/record"

// Sink receives the events of a run. Event is safe for concurrent use. It does not wait for a terminal, with
// one exception: for a step, it returns only when the terminal is free for the prompt. After Close, Event
// does nothing. Close draws the final state, restores the terminal and returns the first write error.
type Sink interface {
	Event(record.Event)
	Close() error
}

// Event kinds.
const (
	RunStarted   = "run-started"
	Lab          = "lab"
	Step         = "step"
	TrialStarted = "trial-started"
	Phase        = "phase"
	Rate         = "rate"
	Latency      = "latency"
	TrialEnded   = "trial-ended"
	Warning      = "warning"
	RunEnded     = "run-ended"
)
