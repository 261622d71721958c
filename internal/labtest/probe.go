package labtest

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Probes returns probes that need no kernel: one for each scope, whose value is the number of its samples,
// and one that is unsupported.
func Probes() []probe.Probe {
	absent := source("absent", record.ScopeHost, "")
	absent.Source = func(probe.Options) (probe.Sampler, error) {
		return nil, fmt.Errorf("%w: a fake machine has none", host.ErrUnsupported)
	}
	return []probe.Probe{source("ticks", record.ScopeNode, "ticks_samples"),
		source("host-ticks", record.ScopeHost, "host-ticks_samples"), absent}
}

// Undeclared returns a probe with an injected fault: one of its columns has a stem that the probe does not
// declare.
func Undeclared() probe.Probe { return source("ticks", record.ScopeNode, "lan/no_such_stem") }

func source(name, scope, column string) probe.Probe {
	return probe.Probe{
		Name:  name,
		Scope: scope,
		Stems: []record.Metric{{
			Name:    name + "_samples",
			Unit:    "count",
			Counter: true,
			Doc:     "samples taken so far",
		}},
		Source: func(probe.Options) (probe.Sampler, error) {
			return &sampler{columns: []string{column}}, nil
		},
	}
}

type sampler struct {
	columns []string
	taken   float64
}

func (s *sampler) Columns() []string { return s.columns }
func (s *sampler) Close() error      { return nil }
func (s *sampler) Sample(dst []float64) error {
	s.taken++
	dst[0] = s.taken
	return nil
}
