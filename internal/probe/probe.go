// Package probe watches a node while traffic flows: one file per telemetry source, each a thin reader over
// a pure parser. It draws no conclusion.
package probe

import (
	"errors"
	"io/fs"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// All lists every probe, fast ones first: the order in which they are read.
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

// Probe is a telemetry source.
type Probe struct {
	Name  string
	Scope string // of its metrics: record.ScopeHost or record.ScopeNode
	Slow  bool   // to read or to change; the others are sampled at 10 Hz
	Rare  bool   // slow, costs much and reports what is asked of it at the edges of a window
	Empty string // why it may have no column for the time being
	Stems []record.Metric
	// Source opens it. An absent source is an error with the reason, never a zero; it is host.ErrUnsupported
	// where that is conclusive. A sampler beside an error is closed.
	Source func(o Options) (Sampler, error)
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

// Sample returns ErrColumns when the set of things it reads has changed (a device appeared, a core
// went offline). The sampler has already taken note: Columns is new, and the next Sample fills it.
var ErrColumns = errors.New("columns changed")

// Options describes to the probes the machine that they read.
type Options struct {
	// Own are processes of the node's machine that, with all that descends from them, belong to the lab:
	// what "foreign" leaves out.
	Own []int `json:"own,omitempty"`
	// Trace means that tracepoints of the node's machine may be switched on for as long as the watch lasts:
	// it is the lab's alone, and bears it.
	Trace bool `json:"trace,omitempty"`
	// NoLog means that the kernel's log is not to be read: it is of a machine that is not the lab's.
	NoLog bool `json:"no_log,omitempty"`
}

// Liner is implemented by samplers that also gather log lines; Lines hands over those since the last call.
// Times are the node's CLOCK_MONOTONIC.
type Liner interface{ Lines() []record.LogLine }

// Cored is implemented by samplers that know each core's load. Cores appends the busy share (0…1) of each
// core since the last call of Cores.
type Cored interface{ Cores(dst []float64) []float64 }

// Declarer is implemented by samplers whose columns have stems that only the machine knows, such as a
// driver's counters.
type Declarer interface{ Declared() []record.Metric }

// ByScope keeps the probes whose metrics have the scope: record.ScopeHost for what one machine has once,
// record.ScopeNode for what each namespace has.
func ByScope(list []Probe, scope string) []Probe {
	return slices.DeleteFunc(slices.Clone(list), func(p Probe) bool { return p.Scope != scope })
}

// Names lists the probes' names, for a watch request.
func Names(list []Probe) []string {
	names := make([]string, len(list))
	for i, p := range list {
		names[i] = p.Name
	}
	return names
}

// Metrics declares the stems of the sampler's columns.
func (p Probe) Metrics() []record.Metric { return scoped(p.Scope, p.Stems) }

// scoped gives metrics their scope.
func scoped(scope string, metrics []record.Metric) []record.Metric {
	metrics = slices.Clone(metrics)
	for i := range metrics {
		metrics[i].Scope = scope
	}
	return metrics
}

// Check answers by opening whether this machine has the source.
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

// Open opens the source. A sampler that has no column yet learns them by its first reading.
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

// counters are some that share unit and meaning.
func counters(unit, doc string, names ...string) []record.Metric {
	var metrics []record.Metric
	for _, name := range names {
		metrics = append(metrics, counter(name, unit, doc))
	}
	return metrics
}

// columns are the names of what a sampler fills.
type columns []string

// Columns names them.
func (c columns) Columns() []string { return c }

// add has a column of a label for each of the metrics.
func (c *columns) add(label string, metrics []record.Metric) {
	for _, m := range metrics {
		*c = append(*c, label+"/"+m.Name)
	}
}
