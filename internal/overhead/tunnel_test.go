package overhead

import "testing"

func TestNamed(t *testing.T) {
	tests := []struct {
		kind  string
		fit   int // over IPv4 on 1500 bytes
		known bool
	}{
		{"wireguard", 1440, true},
		{"wireguard-userspace", 1440, true},
		{"esp", 1446, true},
		{"esp-aes-gcm-256", 1446, true},
		{"esp-chacha20-poly1305", 1446, true},
		{"esp-aes-cbc-sha256", 1438, true},
		{"openvpn", 1448, true},
		{"openvpn-chacha20-poly1305", 1448, true},
		{"openvpn-tcp", 1422, true},
		{"openvpn-tcp-chacha20-poly1305", 1422, true},
		{"none", 1500, false},
		{"", 1500, false},
		{"especially", 1500, false},
	}
	for _, tt := range tests {
		got, known := Named(tt.kind)
		if known != tt.known {
			t.Errorf("Named(%q) is known: got %v, want %v", tt.kind, known, tt.known)
		}

		fit := got.FitMTU(1500)
		if fit != tt.fit {
			t.Errorf("Named(%q): got an MTU of %d, want %d", tt.kind, fit, tt.fit)
		}
	}
}

// TestBestMTUIsQuick: the largest MTU that fits is looked for once, and not for each MTU.
func TestBestMTUIsQuick(t *testing.T) {
	p := Path{Tunnel: Tunnel{Kind: WireGuard, OuterIP: V6}}
	n := testing.AllocsPerRun(1, func() {
		if got := p.BestMTU(1280, 52); got != 1420 {
			t.Errorf("got %d, want 1420", got)
		}
	})
	if n > 5000 {
		t.Errorf("%v allocations for 141 MTUs, want at most 5000", n)
	}
}
