package plan_test

import (
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestPathMTU: links outside of the tunnel bound the path, the one below it does not, which carries the
// tunnel's packets in fragments.
func TestPathMTU(t *testing.T) {
	tests := []struct {
		topology string
		cell     record.Factors
		want     int
	}{
		{"forward", factors(), 1500},
		{"forward", factors("link_mtu", "9000"), 9000},
		{"forward", factors("link_mtu@router.wan", "1400"), 1400},
		{"forward", factors("link_mtu@router.wan", "9000"), 1500},
		{"forward", factors("link_mtu", "9000", "link_mtu@router", "2000", "link_mtu@router.wan", "3000"),
			2000},

		{"forward", factors("mtu", "1420"), 1420},
		{"forward", factors("mtu", "1420", "link_mtu", "1400"), 1400},
		{"forward", factors("mtu", "1420", "link_mtu", "1500"), 1420},
		{"forward", factors("mtu", "1420", "link_mtu@router.wan", "1400"), 1400},
		{"forward", factors("mtu", "1420", "link_mtu@router.lan", "1400"), 1420},
		{"site-to-site", factors("mtu", "1420", "link_mtu", "1400"), 1400},
		{"site-to-site", factors("mtu", "1420", "link_mtu@router-a.wan", "1400"), 1420},
		{"site-to-site", factors("mtu", "1420", "link_mtu@server", "1400"), 1400},
		{"to-router", factors("mtu", "1420", "link_mtu", "1400"), 1420},
		{"direct", factors("mtu", "1420", "link_mtu", "1400"), 1420},
	}
	for _, tt := range tests {
		for _, shape := range topologies() {
			if shape.Name != tt.topology {
				continue
			}

			got := factor.PathMTU(shape, tt.cell)
			if got != tt.want {
				t.Errorf("path MTU of %s with %v: got %d, want %d", tt.topology, tt.cell, got, tt.want)
			}
		}
	}
}
