// Package probe watches a node while traffic flows: one file per telemetry source, each a thin reader over
// a pure parser. It draws no conclusion.
package probe

import (
	"context"
	"errors"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Probe is a telemetry source. An absent source is a check.No with the reason; it is never a zero.
type Probe interface {
	Name() string
	// Metrics declares the stems of the sampler's columns.
	Metrics() []record.Metric
	Check(ctx context.Context, h host.Host) check.Answer
	Open(ctx context.Context, h host.Host) (Sampler, error)
}

// Sampler reads one source repeatedly. It is used by one goroutine.
type Sampler interface {
	// Columns names what Sample fills: "<label>/<stem>" or "<stem>". They may change only when Sample
	// returns ErrColumns.
	Columns() []string
	// Sample fills dst, one value per column; NaN = no value now.
	Sample(dst []float64) error
	Close() error
}

// Paced is implemented by probes whose source is slow to read or to change; the others are sampled at 10
// Hz.
type Paced interface{ Slow() bool }

// ErrColumns is what Sample returns when the set of things it reads has changed (a device appeared, a core
// went offline). The sampler has already taken note: Columns is new, and the next Sample fills it.
var ErrColumns = errors.New("columns changed")

// Rare is implemented by slow probes whose totals between the edges of a window are all that is asked of
// them.
type Rare interface{ Rare() bool }

// Options are what a watch tells the probes about the machine that they read.
type Options struct {
	// Own are processes of the node's machine that, with all that descends from them, belong to the lab:
	// what "foreign" leaves out.
	Own []int `json:"own,omitempty"`
	// Trace tells that tracepoints of the node's machine may be switched on for as long as the watch lasts:
	// it is the lab's alone, and bears it.
	Trace bool `json:"trace,omitempty"`
}

// Configured is implemented by probes that take some of the options; With returns the probe to open.
type Configured interface{ With(o Options) Probe }

// Liner is implemented by samplers that also gather log lines; Lines hands over those since the last call.
// Times are the node's CLOCK_MONOTONIC.
type Liner interface{ Lines() []record.LogLine }

// Cored is implemented by samplers that know each core's load. Cores appends the busy share (0…1) of each
// core since the last call of Cores.
type Cored interface{ Cores(dst []float64) []float64 }

// Declarer is implemented by samplers whose columns have stems that only the machine knows, such as a
// driver's counters.
type Declarer interface{ Declared() []record.Metric }

// Emptier is implemented by samplers that may have no column at all for the time being; Empty is the reason
// to give.
type Emptier interface{ Empty() string }
