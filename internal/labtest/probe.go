package labtest

import (
	"context"
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Probes are sources that need no kernel: one of each scope that counts its own samples, and one that is
// absent.
func Probes() []probe.Probe {
	return []probe.Probe{source{"ticks", record.ScopeNode, ""}, source{"host-ticks", record.ScopeHost, ""},
		source{"absent", record.ScopeHost, "a fake machine has none"}}
}

// Undeclared is a source with a planted fault: its column has a stem that it does not declare.
func Undeclared() probe.Probe { return undeclared{source{"ticks", record.ScopeNode, ""}} }

type undeclared struct{ source }

func (u undeclared) Open(context.Context, host.Host) (probe.Sampler, error) {
	return &sampler{columns: []string{"lan/no_such_stem"}}, nil
}

type source struct{ name, scope, missing string }

func (s source) Name() string { return s.name }

func (s source) Metrics() []record.Metric {
	return []record.Metric{{Name: s.stem(), Unit: "count", Scope: s.scope, Counter: true,
		Doc: "samples taken so far"}}
}

func (s source) stem() string { return s.name + "_samples" }

func (s source) Open(context.Context, host.Host) (probe.Sampler, error) {
	if s.missing != "" {
		return nil, fmt.Errorf("%w: %s", host.ErrUnsupported, s.missing)
	}
	return &sampler{columns: []string{s.stem()}}, nil
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
