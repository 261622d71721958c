package overhead

// Layer says which bytes a rate counts.
type Layer int

// The layers at which rates are stated.
const (
	// LayerWire is a line rate: every byte time, preamble and gap included.
	LayerWire Layer = iota
	// LayerFrame is what tbf, htb and other queueing disciplines count; see
	// Link.Frame.
	LayerFrame
	// LayerIP is IP packets with their headers.
	LayerIP
)

// Path is one link with the tunnel that crosses it, if any.
type Path struct {
	Link   Link
	Tunnel Tunnel
	Inner  IP // version of the packets that carry the payload; 0 = 4
}

// Bytes is what an inner IP packet of m bytes costs on the link, counted at a
// layer: encapsulated, fragmented to the link's MTU and framed. It is 0 if the
// packet cannot cross.
func (p Path) Bytes(m int, at Layer) int {
	v := p.Inner
	if p.Tunnel.Kind != Plain {
		v = p.Tunnel.OuterIP
	}
	sum := 0
	for _, l3 := range Fragments(v, p.Tunnel.Outer(m), p.Link.mtu()) {
		switch at {
		case LayerFrame:
			sum += p.Link.Frame(l3)
		case LayerIP:
			sum += l3
		default:
			sum += p.Link.Wire(l3)
		}
	}
	return sum
}

// MTU is the largest inner packet that the path's ends will send: the
// tunnel's MTU, or the link's without a tunnel.
func (p Path) MTU() int {
	switch {
	case p.Tunnel.Kind == Plain:
		return p.Link.mtu()
	case p.Tunnel.MTU > 0:
		return p.Tunnel.MTU
	}
	return p.Tunnel.FitMTU(p.Link.mtu())
}

// TCP is the share of a rate, counted at a layer, that is left for the payload
// of full TCP segments with or without time stamps. The reverse stream of
// acknowledgements is not in it: on a full-duplex link it costs nothing here.
func (p Path) TCP(timestamps bool, at Layer) float64 {
	return p.share(p.MTU(), p.tcpPayload(timestamps), at)
}

func (p Path) tcpPayload(timestamps bool) int {
	n := p.MTU() - p.Inner.Header() - TCPHeader
	if timestamps {
		n -= TCPTimestamps
	}
	return n
}

// UDP is the same for datagrams in IP packets of m bytes.
func (p Path) UDP(m int, at Layer) float64 {
	return p.share(m, m-p.Inner.Header()-UDPHeader, at)
}

func (p Path) share(m, payload int, at Layer) float64 {
	n := p.Bytes(m, at)
	if n == 0 || payload < 0 {
		return 0
	}
	return float64(payload) / float64(n)
}

// PacketRate is how many inner IP packets of m bytes per second a rate in
// bit/s, counted at a layer, carries.
func (p Path) PacketRate(rate float64, m int, at Layer) float64 {
	n := p.Bytes(m, at)
	if n == 0 {
		return 0
	}
	return rate / 8 / float64(n)
}
