package traffic

import (
	"net/netip"
	"testing"
)

func TestTrainsNeedCheckSumsOfTheDevice(t *testing.T) {
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
		want     train
	}{
		{"a virtual link as on a wire", wire, "198.18.0.1", 36, false, train{most: longestTrain}},
		{"the same, large packets", wire, "198.18.0.1", 1472, false, train{most: 44}},
		{"too large for two", wire, "198.18.0.1", 40000, false, train{}},
		{"a virtual link that takes trains", super, "198.18.0.1", 36, false, train{}},
		{"the same, counted", super, "198.18.0.1", 36, true, train{most: longestTrain, uncut: true}},
		{"as on a wire, counted", wire, "198.18.0.1", 36, true, train{most: longestTrain}},
		{"the device of OpenVPN", map[string]bool{whole: false, generic: false, four: false, six: false},
			"198.18.0.1", 36, true, train{}},
		{"check sums of IPv4 only", map[string]bool{whole: false, four: true}, "198.18.0.1", 36, false,
			train{most: longestTrain}},
		{"check sums of IPv4 only, and IPv6", map[string]bool{whole: false, four: true}, "2001:2::1", 36,
			true, train{}},
		{"unknown", nil, "198.18.0.1", 36, true, train{}},
	}
	for _, tt := range tests {
		if got := trainBy(tt.features, netip.MustParseAddr(tt.to), tt.payload, tt.count); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}
