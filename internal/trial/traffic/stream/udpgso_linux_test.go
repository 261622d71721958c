package stream

import (
	"net/netip"
	"testing"
)

func TestGSONeedsChecksumsOfTheDevice(t *testing.T) {
	const whole, generic, four, six = "tx-udp-segmentation", "tx-checksum-ip-generic", "tx-checksum-ipv4",
		"tx-checksum-ipv6"
	wire := map[string]bool{whole: false, generic: true}
	super := map[string]bool{whole: true, generic: true}
	tests := []struct {
		name     string
		features map[string]bool
		to       string
		payload  int
		count    bool
		want     gso
	}{
		{"a virtual link as on a wire", wire, "198.18.0.1", 36, false, gso{most: maxGSOSegments}},
		{"the same, large packets", wire, "198.18.0.1", 1472, false, gso{most: 44}},
		{"too large for two", wire, "198.18.0.1", 40000, false, gso{}},
		{"a virtual link that takes batches", super, "198.18.0.1", 36, false, gso{}},
		{"the same, counted", super, "198.18.0.1", 36, true, gso{most: maxGSOSegments, whole: true}},
		{"as on a wire, counted", wire, "198.18.0.1", 36, true, gso{most: maxGSOSegments}},
		{"the device of OpenVPN", map[string]bool{whole: false, generic: false, four: false, six: false},
			"198.18.0.1", 36, true, gso{}},
		{"check sums of IPv4 only", map[string]bool{whole: false, four: true}, "198.18.0.1", 36, false,
			gso{most: maxGSOSegments}},
		{"check sums of IPv4 only, and IPv6", map[string]bool{whole: false, four: true}, "2001:2::1", 36,
			true, gso{}},
		{"unknown", nil, "198.18.0.1", 36, true, gso{}},
	}
	for _, tt := range tests {
		got := gsoBy(tt.features, netip.MustParseAddr(tt.to), tt.payload, tt.count)
		if got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}
