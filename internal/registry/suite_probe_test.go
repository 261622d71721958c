package registry_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/watch"
)

// probeSuite tests what every telemetry source must do on a real lab: open and sample on its node, or say why
// not; fill only columns whose stems it declares; and account for its cost. Whether its counters move is
// tested beside each source.
func probeSuite(t *testing.T, l *lab.Lab, p probe.Probe) {
	ctx := labtest.Context(t)
	node := l.Topology.Near
	if p.Scope == record.ScopeHost {
		node = lab.HostNode
	}

	n, err := l.Node(ctx, node)
	must(t, err)
	w, err := watch.Start(ctx, n.Agent, node, []string{p.Name},
		watch.Options{Fast: 20 * time.Millisecond, Slow: 20 * time.Millisecond})
	must(t, err)
	defer w.Close()
	from := host.Monotonic()
	var data record.NodeData
	for range 40 { // a slow source is read when its cost allows
		time.Sleep(50 * time.Millisecond)
		data, err = w.Collect(ctx, from, host.Monotonic())
		must(t, err)
		if len(data.Samples) == 1 && (data.Samples[0].Unavailable != "" || data.Samples[0].Table != nil &&
			len(data.Samples[0].Table.T) > 1) {
			break
		}
	}

	if len(data.Samples) != 1 || data.Samples[0].Probe != p.Name {
		t.Fatalf("samples: got %+v, want those of %s", data.Samples, p.Name)
	}

	s := data.Samples[0]
	if s.Unavailable != "" {
		if s.Table != nil {
			t.Errorf("unavailable (%s), yet got a table", s.Unavailable)
		}

		t.Skip("skip: this machine has no such source: " + s.Unavailable)
	}

	if s.Table == nil || len(s.Table.Names) == 0 || len(s.Table.T) < 2 {
		t.Fatalf("table: got %.200v, want columns and at least two samples", s.Table)
	}

	var stems []string
	for _, m := range s.Metrics {
		stems = append(stems, m.Name)
		if m.Unit == "" || m.Scope == "" {
			t.Errorf("metric %s: got unit %q and scope %q, want both", m.Name, m.Unit, m.Scope)
		}
	}

	for _, column := range s.Table.Names {
		stem := column[strings.LastIndex(column, "/")+1:]
		if !slices.Contains(stems, stem) {
			t.Errorf("column %s: got stem %s, want one of %v", column, stem, stems)
		}
	}

	i := slices.IndexFunc(data.Cost, func(c record.Cost) bool { return c.Probe == p.Name })
	if i < 0 || data.Cost[i].Reads < 1 || data.Cost[i].CPUNs <= 0 || data.Cost[i].OverNs <= 0 {
		t.Errorf("cost: got %+v, want at least one read after the first, its CPU time and the time "+
			"over which", data.Cost)
	}
}
