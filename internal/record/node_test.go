package record

import "testing"

// A run from before facts were stored has those of its kind of lab; one that has them tells nothing else.
func TestNodeFactsOfOldRuns(t *testing.T) {
	shape := []Topology{{Name: "forward", Near: "client", Far: "server", Routers: []string{"router"}}}
	kvm := []Environment{{Node: HostNode, Facts: map[string]string{"guest_accel": "kvm"}}}
	tests := []struct {
		run                          Run
		router, client, driven, lost string
	}{
		{Run{Lab: "local"}, CPUsShared, CPUsShared, DrivenByAgent, ""},
		{Run{Lab: "vm"}, CPUsEmulated, CPUsShared, DrivenByAgent, ""},
		{Run{Lab: "vm:arm64"}, CPUsEmulated, CPUsShared, DrivenByAgent, ""},
		{Run{Lab: "vm", Environments: kvm}, CPUsVirtual, CPUsShared, DrivenByAgent, ""},
		{Run{Lab: "pair"}, CPUsOwn, CPUsOwn, "", "nothing of chokepoint runs on it"},
		{Run{Lab: "other"}, "", "", DrivenByAgent, ""},
		{Run{Lab: "local", Nodes: []NodeFacts{{Name: "router", Driven: "linux", CPUs: CPUsVirtual}}},
			CPUsVirtual, "", "linux", ""},
	}
	for _, tt := range tests {
		tt.run.Topologies = shape
		router, client := tt.run.Tested(), tt.run.Near()
		if router.CPUs != tt.router || client.CPUs != tt.client || router.Driven != tt.driven ||
			router.Unreachable != tt.lost {
			t.Errorf("lab %s: got router %+v and client %+v, want CPUs %s and %s, driven %q", tt.run.Lab,
				router, client, tt.router, tt.client, tt.driven)
		}
	}
}
