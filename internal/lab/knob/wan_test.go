package knob

import (
	"fmt"
	"net/netip"
	"testing"
)

func TestAccess(t *testing.T) {
	for kind, want := range map[string]string{DHCP: "[198.18.64.1 2001:2:0:4000::1]",
		PPPoE: "[198.18.64.1 2001:2:0:4000::1]", Static: "[198.18.64.1]"} {
		a := Provider(kind, "eth1")
		got := fmt.Sprint(a.Own())
		if a.Check() != nil || got != want {
			t.Errorf("by %s the provider has %s, %v; want %s", kind, got, a.Check(), want)
		}
	}

	for text, kind := range map[string]string{"2001:2:0:4000::/50": Static, "2001:2:0:4000::/56": DHCP,
		"2001:2:0:4000::1/50": DHCP, "198.18.0.0/15": DHCP} {
		a := Access{Kind: kind, Device: "eth1", IPv6: netip.MustParsePrefix(text)}
		if a.Check() == nil {
			t.Errorf("%s by %s: got no error", text, kind)
		}
	}
}
