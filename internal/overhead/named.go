package overhead

import "strings"

// families are the encapsulations by the beginning of a tunnel's name in a plan, such as "esp-aes-gcm-256";
// the first that fits counts.
var families = []struct {
	name   string
	tunnel Tunnel
}{
	{"wireguard", Tunnel{Kind: WireGuard}},
	{"esp-aead-natt", Tunnel{Kind: ESP, Suite: ESPAEAD, NATT: true}},
	{"esp-aes-cbc-sha256", Tunnel{Kind: ESP, Suite: ESPCBCSHA256}},
	{"esp-cbc-sha256", Tunnel{Kind: ESP, Suite: ESPCBCSHA256}},
	{"esp", Tunnel{Kind: ESP, Suite: ESPAEAD}},
	{"openvpn-tcp", Tunnel{Kind: OpenVPNTCP}},
	{"openvpn", Tunnel{Kind: OpenVPNUDP}},
}

// Named is the encapsulation of a kind of tunnel by the name that plans give it, such as "wireguard-kernel"
// or "esp"; false if there is none such. The version outside and the MTU are left open.
func Named(kind string) (Tunnel, bool) {
	for _, f := range families {
		if kind == f.name || strings.HasPrefix(kind, f.name+"-") {
			return f.tunnel, true
		}
	}
	return Tunnel{}, false
}

// TunnelMTU is the inner MTU that a kind of tunnel takes by itself: what fits over the version of IP outside
// (4 or 6), but for WireGuard, of which wg-quick(8) leaves room for IPv6 in any case.
func TunnelMTU(kind string, outerIP, linkMTU int) int {
	t, ok := Named(kind)
	if !ok || t.Kind == WireGuard {
		return linkMTU - 80
	}
	t.OuterIP = IP(outerIP)
	return t.FitMTU(linkMTU)
}
