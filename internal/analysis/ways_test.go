package analysis

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestWays: the first line of a result between two machines says what lies between.
func TestWays(t *testing.T) {
	run, trial := pairTrial()
	run.Environments = append(run.Environments, record.Environment{
		Node: "router",
		Facts: map[string]string{
			"path_ipv4:near": "192.168.1.10", "path_ipv4:far": "203.0.113.10", "path_ipv4:nat": "near",
			"path_ipv4:routers": "1", "path_ipv4:route": "192.168.1.1", "path_ipv4:mtu": "1500",
			"path_ipv6:near": "2001:db8::10", "path_ipv6:far": "2001:db8:1::10", "path_ipv6:mtu": "1492"},
	})
	d := Derive(run, []record.Trial{trial})
	want := []string{"192.168.1.10 → 1 router (192.168.1.1), NAT, MTU 1500 → 203.0.113.10",
		"2001:db8::10 → routers not known, MTU 1492 → 2001:db8:1::10"}
	diff := cmp.Diff(want, d.Summary[:2])
	if diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}

	none := 0
	for _, tt := range []struct {
		way  Way
		want string
	}{
		{Way{Near: "a", Far: "b", Hops: &none, NAT: "none", MTU: 9000}, "a → no router, no NAT, MTU 9000 → b"},
		{Way{Near: "a", Far: "b", NAT: "near far"}, "a → routers not known, NAT at both ends → b"},
		{Way{Near: "a", Far: "b", NAT: "far"}, "a → routers not known, NAT before the far end → b"},
	} {
		got := tt.way.Words()
		if got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}
