package traffic

import (
	"net/netip"
	"testing"
)

func TestTrainsNeedCheckSumsOfTheDevice(t *testing.T) {
	const whole, generic, four, six = "tx-udp-segmentation", "tx-checksum-ip-generic", "tx-checksum-ipv4", "tx-checksum-ipv6"
	tests := []struct {
		name     string
		features map[string]bool
		to       string
		want     bool
	}{
		{"a virtual link as on a wire", map[string]bool{whole: false, generic: true}, "198.18.0.1", true},
		{"a virtual link that takes trains", map[string]bool{whole: true, generic: true}, "198.18.0.1", false},
		{"the device of OpenVPN", map[string]bool{whole: false, generic: false, four: false, six: false}, "198.18.0.1", false},
		{"check sums of IPv4 only", map[string]bool{whole: false, four: true}, "198.18.0.1", true},
		{"check sums of IPv4 only, and IPv6", map[string]bool{whole: false, four: true}, "2001:2::1", false},
		{"unknown", nil, "198.18.0.1", false},
	}
	for _, tt := range tests {
		if got := cutsFirst(tt.features, netip.MustParseAddr(tt.to)); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}
