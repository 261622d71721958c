package plan

import (
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

const defaultLinkMTU = 1500

// PathMTU is the largest IP packet in bytes that a cell's path carries whole: the smallest MTU of the
// topology's links, where the tunnel's inner MTU stands for the link that the tunnel is laid over. A cell
// without the factor mtu has no tunnel.
func PathMTU(t record.Topology, c record.Factors) int {
	least := maxPacket
	inner, err := strconv.Atoi(c["mtu"])
	for _, l := range t.Links {
		a, b := l.Ends[0], l.Ends[1]
		mtu := min(portMTU(c, a), portMTU(c, b))
		if ends := [2]string{a.Node, b.Node}; err == nil &&
			(ends == t.Tunnel || ends == [2]string{t.Tunnel[1], t.Tunnel[0]}) {
			mtu = inner
		}
		least = min(least, mtu)
	}
	return least
}

// maxPacket is the largest packet that IP has a length for, in bytes.
const maxPacket = 65535

// portMTU is the MTU that the cell sets on a port: the narrowest place wins.
func portMTU(c record.Factors, p record.TopoPort) int {
	for _, name := range []string{"link_mtu@" + p.Node + "." + p.Port, "link_mtu@" + p.Node, "link_mtu"} {
		if mtu, err := strconv.Atoi(c[name]); err == nil {
			return mtu
		}
	}
	return defaultLinkMTU
}

// linkMTU is the smallest MTU that the cell sets on the underlay.
func linkMTU(c record.Factors) int {
	mtu := 0
	for name, level := range c {
		if name != "link_mtu" && !strings.HasPrefix(name, "link_mtu@") {
			continue
		}
		if v, err := strconv.Atoi(level); err == nil && (mtu == 0 || v < mtu) {
			mtu = v
		}
	}
	if _, everywhere := c["link_mtu"]; !everywhere && (mtu == 0 || mtu > defaultLinkMTU) {
		return defaultLinkMTU // the links that are not named keep their default
	}
	return mtu
}
