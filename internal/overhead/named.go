package overhead

import "strings"

// Named is the encapsulation of a kind of tunnel by the name that plans give it, such as "wireguard-kernel"
// or "esp"; false if there is none such. The version outside and the MTU are left open.
func Named(kind string) (Tunnel, bool) {
	is := func(family string) bool { return kind == family || strings.HasPrefix(kind, family+"-") }
	switch {
	case is("wireguard"):
		return Tunnel{Kind: WireGuard}, true
	case kind == "esp-aes-cbc-sha256":
		return Tunnel{Kind: ESP, Suite: ESPCBCSHA256}, true
	case is("esp"):
		return Tunnel{Kind: ESP, Suite: ESPAEAD}, true
	case is("openvpn-tcp"):
		return Tunnel{Kind: OpenVPNTCP}, true
	case is("openvpn"):
		return Tunnel{Kind: OpenVPNUDP}, true
	}
	return Tunnel{}, false
}
