package record

import "testing"

// A node that is not listed has no facts.
func TestNodeFacts(t *testing.T) {
	run := Run{
		RunHead:    RunHead{Lab: "local"},
		Nodes:      []NodeFacts{{Name: "router", Driven: "linux", CPUs: CPUsVirtual}},
		Topologies: []Topology{{Name: "forward", Near: "client", Far: "server", Routers: []string{"router"}}},
	}
	if got := run.Tested(); got != run.Nodes[0] {
		t.Errorf("router: got %+v", got)
	}

	if got := run.Near(); got != (NodeFacts{Name: "client"}) {
		t.Errorf("client: got %+v, want no facts", got)
	}
}
