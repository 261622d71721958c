package overhead

// Layer is the layer at which a rate is stated. It determines which bytes the rate counts.
type Layer int

// These are the layers at which rates are stated.
const (
	// LayerWire counts every byte time on the wire, including preamble and gap. Line rates are stated at this
	// layer.
	LayerWire Layer = iota
	// LayerFrame counts the bytes that tbf, htb and other queueing disciplines count; see Link.Frame.
	LayerFrame
	// LayerIP counts IP packets including their headers.
	LayerIP
)

// Path describes a link and the tunnel across it, if any.
type Path struct {
	Link   Link
	Tunnel Tunnel
	Inner  IP // IP version of the packets with the payload; 0 means 4
}

// Bytes returns the number of bytes on the link for an inner IP packet of m bytes, after encapsulation,
// fragmentation and framing. The argument at is the layer at which the bytes are counted. Bytes returns 0 if
// the packet does not fit. In a tunnel over TCP, it returns the packet's share of full segments, rounded up,
// because a fast sender fills segments regardless of the length of a record.
func (p Path) Bytes(m int, at Layer) int {
	return p.BytesBy(m, func(l3 int) int { return p.count(l3, at) })
}

// BytesBy is like Bytes, but counts each outer IP packet with the function count.
func (p Path) BytesBy(m int, count func(l3 int) int) int {
	if p.Tunnel.Kind == OpenVPNTCP {
		header := p.Tunnel.OuterIP.Headers(false) // headers of each TCP segment
		length := p.Tunnel.Outer(m) - header
		room := p.Link.mtu() - header
		if room <= 0 {
			return 0
		}

		return (count(p.Link.mtu())*length + room - 1) / room
	}

	fragments := p.Tunnel.Fragments(m, p.Link.mtu())
	if p.Tunnel.Kind == Plain {
		fragments = Fragments(p.Inner, m, p.Link.mtu())
	}

	sum := 0
	for _, l3 := range fragments {
		sum += count(l3)
	}

	return sum
}

// count returns the bytes that a layer counts for an IP packet of length l3.
func (p Path) count(l3 int, at Layer) int {
	switch at {
	case LayerFrame:
		return p.Link.Frame(l3)
	case LayerIP:
		return l3
	}
	return p.Link.Wire(l3)
}

// MTU returns the length of the largest inner packet that the endpoints send. This is the MTU of the tunnel,
// or of the link if there is no tunnel.
func (p Path) MTU() int {
	switch {
	case p.Tunnel.Kind == Plain:
		return p.Link.mtu()
	case p.Tunnel.MTU > 0:
		return p.Tunnel.MTU
	}
	return p.Tunnel.FitMTU(p.Link.mtu())
}

// PacketRate returns how many inner IP packets of m bytes can be sent per second. rate is the available rate
// in bit/s, counted at the layer at.
func (p Path) PacketRate(rate float64, m int, at Layer) float64 {
	n := p.Bytes(m, at)
	if n == 0 {
		return 0
	}
	return rate / 8 / float64(n)
}
