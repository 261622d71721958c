// Package progress shows a run as it happens: it draws a stream of events as a repainted view on a terminal,
// as plain lines, or as JSON lines. It measures nothing, computes no result and never decides anything.
//
// The renderers read these fields of an event, by kind:
//
//	run-started    Run, Text (plan), Data (the design, for its cells)
//	lab            Text (what is being set up, checked or undone)
//	step           a human is asked for something, by whoever sends this
//	trial-started  Row, Index, Total, Cell, Text (kind of the row), PPS or Rate (of a search), Left
//	phase          Phase, Text (what takes long before the first trial), Left, Data (the design, if another)
//	rate           Rate and PPS, Cores
//	latency        RTT, Text ("idle" or "loaded")
//	trial-ended    Row, Index, Cell, Status, Rate, PPS, RTT, Text (why it failed), Left
//	warning        Text
//	run-ended      Status, Text
//
// Cores, Left and Total are taken from any event that carries them.
package progress

import "github.com/chokepoint-lab/chokepoint/internal/record"

// Sink takes the events of a run. Event is safe for concurrent use and does not wait for a terminal, except
// that a step returns once the terminal is free for the prompt; after Close it does nothing. Close draws the
// end, restores the terminal and returns the first failed write.
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
