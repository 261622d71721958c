package lab

import (
	"context"
	"maps"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestBoots: of the guests of a lab that stood before it is known which boot they are; of routers that the
// run makes itself, and of namespaces, that does not matter.
func TestBoots(t *testing.T) {
	boot := "first"
	facing := func(_ context.Context, s host.Session) error {
		return s.Send(agent.Faced{Machine: boot + " net:[1]"})
	}
	for _, tt := range []struct {
		owned bool
		cpus  string
		want  bool
	}{
		{false, record.CPUsVirtual, true},
		{false, record.CPUsEmulated, true},
		{true, record.CPUsVirtual, false},
		{false, record.CPUsShared, false},
	} {
		far := host.Inside(t.Context(), map[string]host.Handler{agent.VerbFacing: facing})
		defer far.Close()
		l := newForward(t, record.LabVM, Parts{})
		l.owned = tt.owned
		l.nodes["router"] = &Node{Name: "router", Agent: far, Facts: record.NodeFacts{CPUs: tt.cpus}}
		for _, boot = range []string{"first", "second"} {
			want := map[string]string{}
			if tt.want {
				want["router"] = boot
			}

			got := l.Boots(t.Context())
			if !maps.Equal(got, want) {
				t.Errorf("owned %v, CPUs %s: got %v, want %v", tt.owned, tt.cpus, got, want)
			}
		}
	}
}
