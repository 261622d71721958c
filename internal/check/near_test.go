package check

import "testing"

// TestChoice: a hint names the word that was meant, and lists all only where none is near.
func TestChoice(t *testing.T) {
	devices := []string{"BPI-R4", "OpenWrt One", "Turris Omnia"}
	tunnels := []string{"none", "wireguard", "openvpn"}
	for _, tt := range []struct {
		text  string
		words []string
		want  string
	}{
		{"bpir4", devices, "did you mean BPI-R4?"},
		{"openwrt-one", devices, "did you mean OpenWrt One?"},
		{"omnia", devices, "did you mean Turris Omnia?"},
		{"wiregaurd", tunnels, "did you mean wireguard?"},
		{"wireguard-kernel", tunnels, "did you mean wireguard?"},
		{"gre", tunnels, "names: none, wireguard, openvpn"},
		{"x", tunnels, "names: none, wireguard, openvpn"},
	} {
		got := Choice(tt.text, "names", tt.words)
		if got != tt.want {
			t.Errorf("Choice(%q): got %q, want %q", tt.text, got, tt.want)
		}
	}
}
