package driver

import (
	"net/netip"
	"strings"
)

// byHandWireGuard returns the commands with which an owner sets up an end of a WireGuard tunnel, or "" for
// other kinds. No command displays the private key, which the router generates.
func byHandWireGuard(kind string, own, other netip.Prefix, steps string) string {
	if !strings.HasPrefix(kind, "wireguard") {
		return ""
	}
	return strings.NewReplacer("NAME", rosMark+"-wg", "OWN", own.String(), "THERE", other.String(), "PEER",
		other.Addr().String()).Replace("; by hand: " + steps + " for the other end, at THERE; UDP port " +
		"51820 must be let in; then measured as found, with --router-lan NAME and without tunnel in the plan")
}

// TunnelByHand implements ByHand.
func (Linux) TunnelByHand(kind string, own, other netip.Prefix) string {
	return byHandWireGuard(kind, own, other, "ip link add NAME type wireguard (on OpenWrt with the packages "+
		"kmod-wireguard and wireguard-tools); wg genkey | wg set NAME "+
		"listen-port 51820 private-key /dev/stdin peer \"THE OTHER END'S\" allowed-ips PEER/32; ip addr add "+
		"OWN dev NAME; ip link set NAME mtu 1420 up; wg show NAME public-key")
}

// TunnelByHand implements ByHand.
func (FreeBSD) TunnelByHand(kind string, own, other netip.Prefix) string {
	return byHandWireGuard(kind, own, other, "ifconfig wg create name NAME; wg genkey | wg set NAME "+
		"listen-port 51820 private-key /dev/stdin peer \"THE OTHER END'S\" allowed-ips PEER/32; ifconfig "+
		"NAME inet OWN mtu 1420 up; wg show NAME public-key")
}

// TunnelByHand implements ByHand.
func (RouterOS) TunnelByHand(kind string, own, other netip.Prefix) string {
	return byHandWireGuard(kind, own, other, "/interface/wireguard/add name=NAME listen-port=51820 "+
		"mtu=1420; /ip/address/add interface=NAME address=OWN; /interface/wireguard/peers/add "+
		"interface=NAME allowed-address=PEER/32 public-key=\"THE OTHER END'S\"; :put "+
		"[/interface/wireguard/get NAME public-key]")
}
