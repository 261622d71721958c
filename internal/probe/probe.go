// Package probe reads the telemetry of a node while traffic flows. Each telemetry source has a file in
// this package, with a thin reader and a pure parser. The package does not interpret the values.
package probe

import (
	"errors"
	"io/fs"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// All lists all probes in the order in which they are read, fast ones first.
func All(root Root) []Probe {
	return []Probe{
		cpu(root), softirq(root), softnet(root), netdev(root), qdiscs(root),
		link(root), ethtool(root), snmp(root), conntrack(root),
		memory(root), pressure(root), cpufreq(root), thermal(root), power(root),
		kernellog(root), foreign(root), guests(root), clock(root), drops(root),
		xfrm(root), wireguard(root), flows(root), queues(root), routecache(root),
		filterRules(root), kthreads(root),
	}
}

// Probe describes a telemetry source.
type Probe struct {
	Name  string
	Scope string // record.ScopeHost or record.ScopeNode
	Slow  bool   // slow to read, or its values change slowly; other probes are sampled at 10 Hz
	Rare  bool   // slow and expensive: readings at the start and end of a window suffice
	Empty string // reason to report if the source currently has no columns
	Stems []record.Metric
	// Source opens the source. Its error explains why the source is unavailable, and wraps
	// host.ErrUnsupported if the source will remain so.
	Source func(o Options) (Sampler, error)
}

// Sampler reads a source repeatedly. Its methods must not be called concurrently.
type Sampler interface {
	// Columns returns the names of the columns, "<label>/<stem>" or "<stem>". They may change only when
	// Sample returns ErrColumns.
	Columns() []string
	// Sample sets dst to one value per column, or NaN if a value is currently unavailable.
	Sample(dst []float64) error
	Close() error
}

// ErrColumns is returned by Sample if the columns have changed, for example because a device appeared or a
// core went offline. Columns then returns the new columns, and the next Sample fills them.
var ErrColumns = errors.New("columns changed")

// Options describes the machine whose telemetry the probes read.
type Options struct {
	// Own lists processes on the node's machine. They and all their descendants belong to the lab. The
	// foreign probe excludes them.
	Own []int `json:"own,omitempty"`
	// Trace allows probes to enable tracepoints on the node's machine during the observation. It is set only
	// if the machine belongs to the lab and supports tracepoints.
	Trace bool `json:"trace,omitempty"`
	// NoLog forbids reading the kernel log. It is set if the log belongs to a machine outside the lab.
	NoLog bool `json:"no_log,omitempty"`
}

// Liner is implemented by samplers that also collect log lines. Lines returns the lines collected since
// the previous call of Lines. Their times are the node's CLOCK_MONOTONIC in nanoseconds.
type Liner interface{ Lines() []record.LogLine }

// Cored is implemented by samplers that measure the load of each core. Cores appends to dst the busy share
// (0 to 1) of each core since the previous call of Cores.
type Cored interface{ Cores(dst []float64) []float64 }

// Declarer is implemented by samplers with stems that depend on the machine, such as the counters of
// drivers.
type Declarer interface{ Declared() []record.Metric }

// ByScope returns the probes of the given scope. record.ScopeHost is for metrics of the whole machine, and
// record.ScopeNode for metrics of each network namespace.
func ByScope(list []Probe, scope string) []Probe {
	return slices.DeleteFunc(slices.Clone(list), func(p Probe) bool { return p.Scope != scope })
}

// Names lists the names of probes.
func Names(list []Probe) []string {
	names := make([]string, len(list))
	for i, p := range list {
		names[i] = p.Name
	}
	return names
}

// Metrics returns the declarations of the stems of the probe's columns.
func (p Probe) Metrics() []record.Metric { return scoped(p.Scope, p.Stems) }

// scoped returns the metrics with their scope set.
func scoped(scope string, metrics []record.Metric) []record.Metric {
	metrics = slices.Clone(metrics)
	for i := range metrics {
		metrics[i].Scope = scope
	}
	return metrics
}

// Check opens the source to find out whether it is available on this machine.
func (p Probe) Check() check.Answer {
	s, err := p.Open(Options{})
	switch {
	case errors.Is(err, host.ErrUnsupported) || errors.Is(err, fs.ErrPermission):
		return check.Not("%v", err)
	case err != nil:
		return check.CouldNotTell("%v", err)
	}

	s.Close()
	return check.OK()
}

// Open opens the source. If the columns are not yet known, it takes a first sample.
func (p Probe) Open(o Options) (Sampler, error) {
	s, err := p.Source(o)
	if err == nil && len(s.Columns()) == 0 {
		if err = s.Sample(nil); errors.Is(err, ErrColumns) {
			err = nil
		}
	}

	if err == nil {
		return s, nil
	}

	if s != nil {
		s.Close()
	}

	return nil, err
}

func counter(name, unit, doc string) record.Metric {
	return record.Metric{Name: name, Unit: unit, Counter: true, Doc: doc}
}

func level(name, unit, doc string) record.Metric {
	return record.Metric{Name: name, Unit: unit, Doc: doc}
}

// counters declares counters with the same unit and meaning.
func counters(unit, doc string, names ...string) []record.Metric {
	var metrics []record.Metric
	for _, name := range names {
		metrics = append(metrics, counter(name, unit, doc))
	}
	return metrics
}

// columns implements Sampler.Columns.
type columns []string

func (c columns) Columns() []string { return c }

// unopened implements Sampler.Columns and Sampler.Close for a sampler that keeps nothing open.
type unopened struct{ columns }

func (unopened) Close() error { return nil }

// add adds a column for each of the metrics, with a label.
func (c *columns) add(label string, metrics []record.Metric) {
	for _, m := range metrics {
		*c = append(*c, label+"/"+m.Name)
	}
}
