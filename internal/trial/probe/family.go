// Package probe watches a node while traffic flows: one file per telemetry
// source, each a thin reader over a pure parser. It draws no conclusion.
package probe

import (
	"context"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Probe is a telemetry source. An absent source is a check.No with the
// reason; it is never a zero.
type Probe interface {
	Name() string
	// Metrics declares the stems of the sampler's columns.
	Metrics() []record.Metric
	Check(ctx context.Context, h host.Host) check.Answer
	Open(ctx context.Context, h host.Host) (Sampler, error)
}

// Sampler reads one source repeatedly. It is used by one goroutine.
type Sampler interface {
	// Columns names what Sample fills: "<label>/<stem>" or "<stem>". They
	// may change only when Sample returns ErrColumns.
	Columns() []string
	// Sample fills dst, one value per column; NaN = no value now.
	Sample(dst []float64) error
	Close() error
}

// Paced is implemented by probes whose source is slow to read or to change;
// the others are sampled at 10 Hz.
type Paced interface{ Slow() bool }
