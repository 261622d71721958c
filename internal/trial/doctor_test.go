package trial

import (
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestEverySettingIsExamined: doctor asks for each knob, by levels that it knows, each once.
func TestEverySettingIsExamined(t *testing.T) {
	for _, k := range knob.All() {
		family, isFamily := strings.CutSuffix(k.Name(), ":")
		found := 0
		for i, s := range examined {
			setting, text, _ := strings.Cut(s, "=")
			if name, rest, ok := strings.Cut(setting, ":"); isFamily && ok && name == family {
				text = rest + "=" + text
			} else if setting != k.Name() {
				continue
			}

			found++
			if _, err := k.Parse(text); err != nil {
				t.Errorf("%s: %v", k.Name(), err)
			}

			if slices.Contains(examined[:i], s) {
				t.Errorf("%s is examined twice", s)
			}
		}

		if found == 0 {
			t.Errorf("%s is not examined", k.Name())
		}
	}
}

// TestTunnelHint: what this machine's kernel lacks, that of a virtual router may have, where the tunnel ends
// there.
func TestTunnelHint(t *testing.T) {
	own := record.NodeFacts{OwnKernel: true}
	const other = "take topology peer-to-router or site-to-site: there the tunnel ends on routers with " +
		"kernels of their own"
	for _, tt := range []struct {
		topology    string
		facts       record.NodeFacts // of the routers
		known, want string
	}{
		{"forward", own, "", other},
		{"to-router", own, "load it", "load it; or " + other},
		{"site-to-site", own, "load it", "load it"},
		{"forward", record.NodeFacts{}, "load it", "load it"},
		{"forward", record.NodeFacts{OwnKernel: true, Fixed: "nothing is changed"}, "", ""},
	} {
		topology, err := lab.TopologyNamed(tt.topology)
		if err != nil {
			t.Fatal(err)
		}

		var nodes []*lab.Node
		for _, n := range topology.Nodes {
			node := &lab.Node{Name: n.Name, Agent: struct{ host.Agent }{}}
			if n.Router {
				node.Facts = tt.facts
			}

			nodes = append(nodes, node)
		}

		l, err := lab.Assemble("fake", topology, nodes, lab.Parts{}, nil)
		if err != nil {
			t.Fatal(err)
		}

		got := tunnelHint(t.Context(), l, check.Not("no").Hinted("%s", tt.known))
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.topology, got, tt.want)
		}
	}
}
