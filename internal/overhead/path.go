package overhead

// Layer determines which bytes a rate counts.
type Layer int

// The layers at which rates are stated.
const (
	// LayerWire is a line rate: every byte time, including preamble and gap.
	LayerWire Layer = iota
	// LayerFrame counts what tbf, htb and other queueing disciplines count; see Link.Frame.
	LayerFrame
	// LayerIP counts IP packets with their headers.
	LayerIP
)

// Path is one link with the tunnel that crosses it, if any.
type Path struct {
	Link   Link
	Tunnel Tunnel
	Inner  IP // version of the packets that carry the payload; 0 = 4
}

// Bytes returns what an inner IP packet of m bytes costs on the link, counted at a layer: encapsulated,
// fragmented to the link's MTU and framed. It is 0 if the packet cannot cross. In a stream it costs its
// share, rounded up, of full segments: a fast sender fills them, whatever the length of a record.
func (p Path) Bytes(m int, at Layer) int {
	return p.BytesBy(m, func(l3 int) int { return p.count(l3, at) })
}

// BytesBy is like Bytes, with another function to count each IP packet.
func (p Path) BytesBy(m int, count func(l3 int) int) int {
	if p.Tunnel.Kind == OpenVPNTCP {
		header := p.Tunnel.OuterIP.Headers(false) // of each segment of the stream
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

// count returns what a layer counts for an IP packet.
func (p Path) count(l3 int, at Layer) int {
	switch at {
	case LayerFrame:
		return p.Link.Frame(l3)
	case LayerIP:
		return l3
	}
	return p.Link.Wire(l3)
}

// MTU returns the largest inner packet that the path's ends will send: the tunnel's MTU, or the link's
// without a tunnel.
func (p Path) MTU() int {
	switch {
	case p.Tunnel.Kind == Plain:
		return p.Link.mtu()
	case p.Tunnel.MTU > 0:
		return p.Tunnel.MTU
	}
	return p.Tunnel.FitMTU(p.Link.mtu())
}

// PacketRate returns how many inner IP packets of m bytes per second a rate in bit/s, counted at a layer,
// carries.
func (p Path) PacketRate(rate float64, m int, at Layer) float64 {
	n := p.Bytes(m, at)
	if n == 0 {
		return 0
	}
	return rate / 8 / float64(n)
}
