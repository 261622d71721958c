package kernel

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestWayBySocket: what a socket says is what the kernel's routes say, but for the neighbour.
func TestWayBySocket(t *testing.T) {
	for _, to := range []string{"127.0.0.1", "::1"} {
		at := netip.MustParseAddr(to)
		want, err := WayTo(at)
		if err != nil {
			t.Fatal(err)
		}

		got, err := wayBySocket(at)
		diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}))
		if diff != "" || err != nil ||
			got.Device != "lo" {
			t.Errorf("way to %s: %v (-want +got)\n%s", to, err, diff)
		}
	}

	if got, err := wayBySocket(netip.MustParseAddr("2001:2:ffff::1")); err == nil {
		want, fault := WayTo(netip.MustParseAddr("2001:2:ffff::1"))
		if got.Device != want.Device {
			t.Errorf("way to an address elsewhere: got %+v, the kernel says %+v, %v", got, want, fault)
		}
	}
}
