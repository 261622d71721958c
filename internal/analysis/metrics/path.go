package metrics

import (
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/overhead"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// PathOf builds the link and tunnel of a cell for the overhead formulas. Tunnels of the local lab run over
// IPv4 unless outer_ip says otherwise.
func PathOf(f record.Factors, tunnelled bool) overhead.Path {
	p := overhead.Path{Link: overhead.Link{MTU: LinkMTU(f)}, Inner: IPOf(f["ip"])}
	for name, level := range f {
		if base, _, _ := strings.Cut(name, "@"); base == "vlan" && level != "off" && level != "none" &&
			level != "" {
			p.Link.VLANs = 1
		}
	}
	mtu, _ := strconv.Atoi(f["mtu"])
	if t, ok := overhead.Named(f["tunnel"]); ok {
		t.OuterIP, t.MTU = IPOf(f["outer_ip"]), mtu
		p.Tunnel = t
	}
	if !tunnelled && mtu > 0 && p.Tunnel.Kind != overhead.Plain {
		// Outside the tunnel its packets still have its size.
		p.Link.MTU, p.Tunnel = min(mtu, p.Link.MTU), overhead.Tunnel{}
	}
	return p
}

func IPOf(text string) overhead.IP {
	if text == "6" {
		return overhead.V6
	}
	return overhead.V4
}

// LinkMTU is the smallest MTU that a cell sets on the underlay.
func LinkMTU(f record.Factors) int {
	least := 0
	for name, level := range f {
		if base, _, _ := strings.Cut(name, "@"); base != "link_mtu" {
			continue
		}
		if v, err := strconv.Atoi(level); err == nil && v > 0 && (least == 0 || v < least) {
			least = v
		}
	}
	if _, everywhere := f["link_mtu"]; least == 0 || !everywhere && least > 1500 {
		return 1500
	}
	return least
}

// PayloadShare is payload ÷ bytes, on a path and at a layer, of the cell's usual IP packets: full segments
// with time stamps for TCP, the given sizes for UDP. It is 0 if the path does not carry them.
func PayloadShare(f record.Factors, on overhead.Path, at overhead.Layer) float64 {
	p := PathOf(f, true)
	headers, sizes := p.Inner.Header()+overhead.TCPHeader+overhead.TCPTimestamps, []int(nil)
	if f["protocol"] == "udp" {
		headers, sizes = p.Inner.Header()+overhead.UDPHeader, f.PacketSizes()
	}
	if sizes == nil {
		sizes = []int{p.MTU()}
	}
	payload, bytes := 0, 0
	for _, size := range sizes {
		n := on.Bytes(size, at)
		if n <= 0 {
			return 0
		}
		payload, bytes = payload+max(size-headers, 0), bytes+n
	}
	return float64(payload) / float64(bytes)
}
