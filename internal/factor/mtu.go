package factor

import "strconv"

const (
	defaultLinkMTU = 1500
	maxPacket      = 65535 // the largest packet that IP has a length for, in bytes
	minIPv4MTU     = 576   // RFC 791: every host accepts packets of this size
	minIPv6MTU     = 1280  // RFC 8200, section 5
)

// PathMTU is the largest IP packet in bytes that a cell's path carries whole: the smallest MTU of the
// shape's links, where the tunnel's inner MTU stands for the link that the tunnel is laid over. A cell
// without the factor mtu has no tunnel.
func PathMTU(s Shape, c Cell) int {
	least := maxPacket
	inner, err := strconv.Atoi(MTU.Of(c))
	for _, l := range s.Links {
		a, b := l.Ends[0], l.Ends[1]
		mtu := min(portMTU(c, a), portMTU(c, b))
		if ends := [2]string{a.Node, b.Node}; err == nil &&
			(ends == s.Tunnel || ends == [2]string{s.Tunnel[1], s.Tunnel[0]}) {
			mtu = inner
		}
		least = min(least, mtu)
	}
	return least
}

// portMTU is the MTU that the cell sets on a port: the narrowest place wins.
func portMTU(c Cell, p Port) int {
	for _, place := range []string{p.Node + "." + p.Port, p.Node, ""} {
		if level, ok := LinkMTU.At(c, place); ok {
			if mtu, err := strconv.Atoi(level); err == nil {
				return mtu
			}
		}
	}
	return defaultLinkMTU
}

// UnderlayMTU is the smallest MTU that the cell sets on the underlay.
func UnderlayMTU(c Cell) int {
	mtu := 0
	for _, level := range LinkMTU.Each(c) {
		if v, err := strconv.Atoi(level); err == nil && (mtu == 0 || v < mtu) {
			mtu = v
		}
	}
	if !LinkMTU.In(c) && (mtu == 0 || mtu > defaultLinkMTU) {
		return defaultLinkMTU // the links that are not named keep their default
	}
	return mtu
}
