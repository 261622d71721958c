package driver_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
)

// TestTunnelByHand: on every system the steps make an end with its addresses, and show the public key alone.
func TestTunnelByHand(t *testing.T) {
	own := netip.MustParsePrefix("198.19.0.2/24")
	other := netip.MustParsePrefix("198.19.0.1/24")
	for _, d := range driver.All() {
		by, ok := d.(driver.ByHand)
		if !ok {
			t.Errorf("%s: it knows no steps", d.Name())
			continue
		}

		text := by.TunnelByHand("wireguard-kernel", own, other)
		for _, want := range []string{"by hand", own.String(), other.String(),
			other.Addr().String() + "/32", "51820", "1420",
			"for the other end", "without tunnel in the plan"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: got %q, want %q in it", d.Name(), text, want)
			}
		}

		if strings.Contains(text, "NAME ") || strings.Contains(text, "OWN") ||
			strings.Contains(text, "PEER") || strings.Contains(text, "showconf") {
			t.Errorf("%s: got %q, want names and no configuration with keys", d.Name(), text)
		}

		if text := by.TunnelByHand("openvpn", own, other); text != "" {
			t.Errorf("%s: openvpn: got %q, want nothing", d.Name(), text)
		}
	}
}
