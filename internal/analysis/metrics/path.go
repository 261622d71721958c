package metrics

import (
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/overhead"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// PathOf returns the link and tunnel of a cell for the formulas of package overhead. The outer packets of a
// tunnel are IPv4 unless the cell sets another version.
func PathOf(f record.Factors, tunnelled bool) overhead.Path {
	p := overhead.Path{Link: overhead.Link{MTU: factor.UnderlayMTU(f)}, Inner: IPOf(f, factor.IP)}
	for _, level := range factor.VLAN.Each(f) {
		if level != factor.Off && level != "none" && level != "" {
			p.Link.VLANs = 1
		}
	}

	mtu := factor.MTU.Number(f)
	if t, ok := overhead.Named(factor.Tunnel.Of(f)); ok {
		t.OuterIP = IPOf(f, factor.OuterIP)
		t.MTU = mtu
		p.Tunnel = t
	}

	if !tunnelled && mtu > 0 && p.Tunnel.Kind != overhead.Plain {
		// Packets sent outside the tunnel are no larger than packets sent through it.
		p.Link.MTU = min(mtu, p.Link.MTU)
		p.Tunnel = overhead.Tunnel{}
	}

	return p
}

// IPOf returns the IP version that a factor selects, IPv4 by default.
func IPOf(f record.Factors, name factor.Name) overhead.IP {
	if name.Is(f, "6") {
		return overhead.V6
	}
	return overhead.V4
}

// PayloadShare returns the ratio of payload to bytes on a path for the cell's packets: full TCP segments, or
// UDP packets of the cell's sizes. headers is the length of a packet's headers. count returns the number of
// bytes that a packet has on the path. PayloadShare returns 0 if the path cannot carry the packets.
func PayloadShare(f record.Factors, headers int, count func(size int) int) float64 {
	sizes := []int{PathOf(f, true).MTU()}
	given := f.PacketSizes()
	if factor.Protocol.Is(f, factor.UDP) && given != nil {
		sizes = given
	}

	payload := 0
	bytes := 0
	for _, size := range sizes {
		n := count(size)
		if n <= 0 {
			return 0
		}

		payload += max(size-headers, 0)
		bytes += n
	}

	return float64(payload) / float64(bytes)
}

// HeadersOf returns the length of the IP and transport headers of a cell's packets, with TCP timestamps.
func HeadersOf(f record.Factors) int {
	return IPOf(f, factor.IP).Headers(factor.Protocol.Is(f, factor.UDP))
}
