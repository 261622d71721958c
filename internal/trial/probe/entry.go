package probe

import (
	"context"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// All lists every probe, fast ones first: the order in which they are read.
func All(root Root) []Probe {
	return []Probe{
		cpu(root), softirq(root), softnet(root), netdev(root), qdisc(root),
		link(root), ethtool(root), snmp(root), conntrack(root),
		memory(root), pressure(root), cpufreq(root), thermal(root), power(root),
		kernellog(root), foreign(root), guests(root), clock(root), drops(root),
		xfrm(root), wireguard(root), flows(root), queues(root), routecache(root),
	}
}

// ByScope keeps the probes whose metrics have the scope: record.ScopeHost for what one machine has once,
// record.ScopeNode for what each namespace has.
func ByScope(list []Probe, scope string) []Probe {
	var kept []Probe
	for _, p := range list {
		if Scope(p) == scope {
			kept = append(kept, p)
		}
	}
	return kept
}

// Scope is the scope of all of p's metrics.
func Scope(p Probe) string { return p.Metrics()[0].Scope }

// Names lists the probes' names, for a watch request.
func Names(list []Probe) []string {
	names := make([]string, len(list))
	for i, p := range list {
		names[i] = p.Name()
	}
	return names
}

// entry is a probe made of its parts.
type entry struct {
	name    string
	slow    bool
	rare    bool // slow, and only its totals between marks matter
	metrics []record.Metric
	check   func(ctx context.Context, h host.Host) check.Answer // nil: by opening
	open    func() (Sampler, error)
	with    func(o Options) func() (Sampler, error) // nil: takes nothing
}

func (e entry) Name() string             { return e.name }
func (e entry) Slow() bool               { return e.slow }
func (e entry) Rare() bool               { return e.rare }
func (e entry) Metrics() []record.Metric { return e.metrics }

// Check answers by opening where nothing else was given: for sources that are many files, it can only speak
// of the machine that the program runs on.
func (e entry) Check(ctx context.Context, h host.Host) check.Answer {
	if e.check != nil {
		return e.check(ctx, h)
	}
	s, err := e.open()
	if err != nil {
		return errAnswer(err)
	}
	s.Close()
	return check.OK()
}

// Open reads the files of the machine that the program runs on, under the probe's root; a host is needed
// only to check.
func (e entry) Open(context.Context, host.Host) (Sampler, error) { return e.open() }

func (e entry) With(o Options) Probe {
	if e.with != nil {
		e.open = e.with(o)
	}
	return e
}

func fileCheck(path, why string) func(context.Context, host.Host) check.Answer {
	return func(ctx context.Context, h host.Host) check.Answer { return checkFile(ctx, h, path, why) }
}

// counter and gauge declare metrics of one scope.
func counter(scope, name, unit, doc string) record.Metric {
	return record.Metric{Name: name, Unit: unit, Scope: scope, Counter: true, Doc: doc}
}

func level(scope, name, unit, doc string) record.Metric {
	return record.Metric{Name: name, Unit: unit, Scope: scope, Doc: doc}
}
