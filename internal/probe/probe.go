// Package probe watches a node while traffic flows: one file per telemetry source, each a thin reader over a
// pure parser. It draws no conclusion.
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
	Scope string // scope of its metrics: record.ScopeHost or record.ScopeNode
	Slow  bool   // slow to read or to change; the others are sampled at 10 Hz
	Rare  bool   // slow and expensive; its readings at the edges of a window suffice
	Empty string // why it may temporarily have no column
	Stems []record.Metric
	// Source opens the probe's source. If the source is absent, the error gives the reason; it is
	// host.ErrUnsupported if that is conclusive. A sampler returned with an error is closed.
	Source func(o Options) (Sampler, error)
}

// Sampler reads one source repeatedly. It is used by one goroutine.
type Sampler interface {
	// Columns returns the names of the values filled in by Sample: "<label>/<stem>" or "<stem>". They may
	// change only when Sample returns ErrColumns.
	Columns() []string
	// Sample fills dst, one value per column; NaN = no value now.
	Sample(dst []float64) error
	Close() error
}

// Sample returns ErrColumns if the set of columns has changed (a device appeared, a core went offline). The
// sampler has already adapted: Columns is new, and the next Sample fills it.
var ErrColumns = errors.New("columns changed")

// Options describes, for the probes, the machine that they read.
type Options struct {
	// Own lists processes of the node's machine that, with all their descendants, belong to the lab:
	// "foreign" excludes them.
	Own []int `json:"own,omitempty"`
	// Trace permits switching on tracepoints of the node's machine for the length of the watch: the machine
	// belongs to the lab alone, and supports it.
	Trace bool `json:"trace,omitempty"`
	// NoLog forbids reading the kernel's log: it belongs to a machine outside the lab.
	NoLog bool `json:"no_log,omitempty"`
}

// Liner is implemented by samplers that also collect log lines; Lines returns the lines since its previous
// call. Times are the node's CLOCK_MONOTONIC.
type Liner interface{ Lines() []record.LogLine }

// Cored is implemented by samplers that know each core's load. Cores appends the busy share (0…1) of each
// core since its previous call.
type Cored interface{ Cores(dst []float64) []float64 }

// Declarer is implemented by samplers whose columns have stems that only the machine knows, such as a
// driver's counters.
type Declarer interface{ Declared() []record.Metric }

// ByScope returns the probes whose metrics have the scope: record.ScopeHost for metrics of the whole machine,
// record.ScopeNode for those of each namespace.
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

// scoped sets the scope of metrics.
func scoped(scope string, metrics []record.Metric) []record.Metric {
	metrics = slices.Clone(metrics)
	for i := range metrics {
		metrics[i].Scope = scope
	}
	return metrics
}

// Check finds out, by opening the source, whether it exists on this machine.
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

// Open opens the source. A sampler without columns learns them from its first reading.
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

// columns lists the columns that a sampler fills.
type columns []string

// Columns returns them.
func (c columns) Columns() []string { return c }

// add adds a column with a label for each of the metrics.
func (c *columns) add(label string, metrics []record.Metric) {
	for _, m := range metrics {
		*c = append(*c, label+"/"+m.Name)
	}
}
