package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Header bytes that bound a UDP packet, and what Ethernet adds to it.
const (
	ipv4Header  = 20
	ipv6Header  = 40
	udpHeader   = 8
	stampHeader = 16 // our sequence number and flags, in each datagram

	// EthernetBytes is what a frame adds to its IP packet: 14 bytes of header and 4 of frame check sequence
	// (IEEE 802.3), without a tag.
	EthernetBytes = 18

	minIPv4MTU = 576  // RFC 791: every host accepts packets of this size
	minIPv6MTU = 1280 // RFC 8200, section 5
)

// BaseOptions names the levels that other packages own.
type BaseOptions struct {
	Topologies  []record.Topology // the first is the default
	Tunnels     []string          // "none" must be one, and is the default
	Engines     []string          // the first is the default
	Congestions []string          // the first is the default
	// TunnelMTU is the inner MTU that a kind of tunnel takes by itself over a version of IP; nil leaves 80
	// bytes for the outer headers, as wg-quick(8) does.
	TunnelMTU  func(tunnel string, outerIP, linkMTU int) int
	MaxTunnels int // that a lab carries side by side
	// FlowSize reads a distribution of flow sizes and returns its canonical text; nil where no engine makes
	// flows.
	FlowSize func(text string) (string, error)
}

// frameSizes are those of Ethernet that RFC 2544, section 9.1, names.
var frameSizes = [...]string{"64", "128", "256", "512", "1024", "1280", "1518"}

// maxStreams is of UDP; an engine says how many it carries of TCP.
const maxStreams = 10_000

// copies are names for cells that are the same.
var copies = [...]string{"a", "b", "c", "d"}

// BaseFactors returns the factors that are part of every cell, in the order in which their defaults depend
// on each other.
func BaseFactors(o BaseOptions) []Factor {
	if o.TunnelMTU == nil {
		o.TunnelMTU = func(_ string, _, linkMTU int) int { return linkMTU - 80 }
	}
	return append(pathFactors(o), trafficFactors(o)...)
}

func pathFactors(o BaseOptions) []Factor {
	var topologies []string
	for _, t := range o.Topologies {
		topologies = append(topologies, t.Name)
	}
	tunnelled := onlyWith("tunnel", "there is no tunnel", func(t string) bool { return t != "none" })
	return []Factor{
		choice("topology", "shape of the lab", topologies[0], topologies, func(f *Factor) { f.Hard = true }),
		choice("tunnel", "what carries the traffic", "none", o.Tunnels),
		{
			Name: "mtu", Unit: "bytes", Doc: "the tunnel's inner MTU", Base: true,
			Parse:   Whole(minIPv4MTU, 65535),
			Applies: tunnelled,
			Derive: func(c record.Factors) string {
				outer, _ := strconv.Atoi(c["outer_ip"]) // 0 where it is not given
				return strconv.Itoa(o.TunnelMTU(c["tunnel"], cmp.Or(outer, 4), linkMTU(c)))
			},
			Conflict: mtuConflict,
		},
		{
			Name: "outer_ip", Doc: "version of IP outside the tunnel; 4 if not given",
			Levels: []string{"4", "6"},
			Parse:  Choice("4", "6"), Applies: tunnelled,
			Conflict: outerConflict,
		},
		{
			Name: "tunnels", Doc: "tunnels side by side, over which the streams are spread; 1 if not given",
			Parse: Whole(1, int64(max(o.MaxTunnels, 1))), Applies: tunnelled,
			Conflict: tunnelsConflict,
		},
		choice("ip", "version of the Internet Protocol", "4",
			[]string{"4", "6"}, func(f *Factor) { f.Conflict = o.ipConflict }),
		choice("nat", "address translation on the router, of IPv4; IPv6 passes as it is (NAT66 is off)",
			"off",
			[]string{"off", "masquerade", "forward"}, func(f *Factor) { f.Conflict = natConflict }),
		choice("offload", "virtual links: packets of up to 64 KiB, or as on a wire", "wire",
			[]string{"wire", "super"}),
	}
}

func trafficFactors(o BaseOptions) []Factor {
	udp := onlyWith("protocol", "protocol is not udp", func(p string) bool { return p == "udp" })
	factors := []Factor{
		choice("protocol", "transport protocol", "tcp", []string{"tcp", "udp"}),
		{
			Name: "streams", Doc: "parallel flows in each direction", Base: true, Default: "1",
			Parse: Whole(1, maxStreams),
		},
		choice("direction", "where the data goes; up is client to server", record.Up,
			[]string{record.Up, record.Down, record.Both}),
		{
			Name: "frame_size", Unit: "bytes, imix, rfc2544", Applies: udp,
			Doc:   "Ethernet frame with its check sequence, untagged; rfc2544 is a list of seven sizes",
			Parse: orIMIX(Whole(64, 65535)), Sets: map[string][]string{"rfc2544": frameSizes[:]},
		},
		{
			Name: "packet_size", Unit: "bytes, imix", Doc: "length of the IP packet", Base: true,
			Parse: orIMIX(Whole(1, 65535)), Applies: udp,
			Derive: func(c record.Factors) string {
				if c["frame_size"] == record.IMIX {
					return record.IMIX
				}
				if frame, err := strconv.Atoi(c["frame_size"]); err == nil {
					return strconv.Itoa(frame - EthernetBytes)
				}
				return strconv.Itoa(o.pathMTU(c))
			},
			Conflict: o.sizeConflict,
		},
		{
			Name: "rate", Unit: "bit/s", Doc: "UDP payload of all streams together, or flat out", Base: true,
			Default: "flat", Parse: parseRate, Applies: udp,
		},
		{
			Name: "udp_mode", Doc: "datagrams one by one with order and delay, or counted by length at the " +
				"highest rate; exact if not given",
			Levels: []string{record.UDPExact, record.UDPCount}, Parse: Choice(record.UDPExact,
				record.UDPCount), Applies: udp,
		},
		{
			Name: "udp_trains", Doc: "whether the sender may give the kernel many datagrams in one write; " +
				"auto if not given",
			Levels: []string{"auto", record.TrainsOff}, Parse: Choice("auto", record.TrainsOff), Applies: udp,
		},
	}
	factors = append(factors, tcpFactors(o)...)
	factors = append(factors, choice("engine", "load generator", o.Engines[0], o.Engines))
	factors = append(factors, flowFactors(o)...)
	return append(factors, []Factor{
		{Name: "dscp", Doc: "differentiated services code point of what is sent", Parse: Whole(0, 63)},
		{
			Name: "copy", Doc: "changes nothing: cells that differ in it alone show the method's own " +
				"noise (A/A)",
			Levels: copies[:], Parse: Choice(copies[:]...),
		},
	}...)
}

func tcpFactors(o BaseOptions) []Factor {
	tcp := onlyWith("protocol", "protocol is not tcp", func(p string) bool { return p == "tcp" })
	return []Factor{
		choice("congestion", "TCP congestion control; streams take several, joined by +, in turn",
			o.Congestions[0], o.Congestions,
			func(f *Factor) { f.Applies, f.Parse = tcp, severalOf(f.Parse) }),
		{
			Name: "pacing", Unit: "bit/s",
			Doc:   "TCP payload of all streams together, at which the kernel paces them",
			Parse: parsePacing, Applies: tcp,
		},
		{
			Name: "mss", Unit: "bytes", Doc: "TCP segment size asked for; from the path's MTU if not given",
			Parse: Whole(minSegment, maxSegment), Applies: tcp,
		},
		{
			Name: "socket_buffer", Unit: "bytes",
			Doc:   "buffers of each TCP socket, both ways; tuned by the kernel if not given",
			Parse: Whole(minBuffer, maxBuffer), Applies: tcp,
		},
		{
			Name: "ecn", Doc: "whether both ends ask for explicit congestion notification",
			Levels: []string{"on", "off"},
			Parse:  Choice("on", "off"), Applies: tcp,
		},
	}
}

// Bounds of TCP's own settings: the kernel's least segment (TCP_MIN_MSS), what fits an IP packet, the
// kernel's least receive buffer, and far more than any path holds.
const (
	minSegment, maxSegment = 88, 65535 - ipv4Header - 20
	minBuffer, maxBuffer   = 4608, 1 << 30
)

// severalOf reads levels joined by "+", each once.
func severalOf(parse func(string) (string, error)) func(string) (string, error) {
	return func(text string) (string, error) {
		var seen []string
		for part := range strings.SplitSeq(text, "+") {
			level, err := parse(part)
			if err != nil {
				return "", err
			}
			if slices.Contains(seen, level) {
				return "", &LevelError{Text: text, Want: "a list that names each once"}
			}
			seen = append(seen, level)
		}
		return strings.Join(seen, "+"), nil
	}
}

func choice(name, doc, def string, levels []string, more ...func(*Factor)) Factor {
	f := Factor{Name: name, Doc: doc, Default: def, Base: true, Levels: levels, Parse: Choice(levels...)}
	for _, m := range more {
		m(&f)
	}
	return f
}

func onlyWith(name, why string, ok func(level string) bool) func(record.Factors) (bool, string) {
	return func(c record.Factors) (bool, string) {
		if ok(c[name]) {
			return true, ""
		}
		return false, why
	}
}

func (o BaseOptions) pathMTU(c record.Factors) int {
	i := slices.IndexFunc(o.Topologies, func(t record.Topology) bool { return t.Name == c["topology"] })
	return PathMTU(o.Topologies[max(i, 0)], c)
}

// mtuConflict is for an inner MTU that was derived; a written one is judged when it is read.
func mtuConflict(c record.Factors) string {
	if mtu, err := strconv.Atoi(c["mtu"]); err == nil && mtu < minIPv4MTU {
		return fmt.Sprintf("the underlay leaves %d bytes inside the tunnel, and IPv4 needs %d", mtu,
			minIPv4MTU)
	}
	return ""
}

// outerConflict: IPv6 outside needs links that have room for it.
func outerConflict(c record.Factors) string {
	if mtu := linkMTU(c); c["outer_ip"] == "6" && mtu < minIPv6MTU {
		return fmt.Sprintf("IPv6 outside the tunnel needs links of %d bytes or more, there are some of %d",
			minIPv6MTU, mtu)
	}
	return ""
}

// tunnelsConflict: stream n takes tunnel n modulo their number, so that each must have one.
func tunnelsConflict(c record.Factors) string {
	n, _ := strconv.Atoi(c["tunnels"])
	streams, err := strconv.Atoi(c["streams"])
	switch {
	case n <= 1 || err != nil:
		return ""
	case streams < n:
		return fmt.Sprintf("%d tunnels need as many streams, there %s", n, isOrAre(streams))
	case c["engine"] == "iperf3":
		return "iperf3 sends all its streams to one address, and each tunnel leads to another"
	}
	return ""
}

func isOrAre(n int) string {
	if n == 1 {
		return "is 1"
	}
	return fmt.Sprintf("are %d", n)
}

func (o BaseOptions) ipConflict(c record.Factors) string {
	if mtu := min(o.pathMTU(c), linkMTU(c)); c["ip"] == "6" && mtu < minIPv6MTU {
		return fmt.Sprintf("IPv6 needs an MTU of %d bytes or more, the path has %d", minIPv6MTU, mtu)
	}
	return ""
}

func natConflict(c record.Factors) string {
	if c["nat"] == "off" {
		return ""
	}
	tunnelled := c["tunnel"] != "none"
	switch {
	case c["ip"] == "6" && c["nat"] == "forward":
		return "NAT66 is off: ports are forwarded with IPv4 only"
	case c["topology"] != "forward" && c["topology"] != "site-to-site":
		return fmt.Sprintf("topology %s forwards nothing that could be translated", c["topology"])
	case tunnelled && c["nat"] == "forward":
		return "a port forward leads to the client's own address, past the tunnel"
	case tunnelled && c["topology"] == "site-to-site":
		return "the tunnel between the routers carries the traffic past the address translation"
	}
	return ""
}

// sizeConflict holds for the cell's packets, however their size was given.
func (o BaseOptions) sizeConflict(c record.Factors) string {
	if c["packet_size"] == record.IMIX {
		return o.mixConflict(c)
	}
	size, err := strconv.Atoi(c["packet_size"])
	if err != nil {
		return ""
	}
	header := ipv4Header
	if c["ip"] == "6" {
		header = ipv6Header
	}
	least := header + udpHeader + stampHeader
	what := fmt.Sprintf("an IPv%s packet of %d bytes", c["ip"], size)
	if frame, ok := c["frame_size"]; ok {
		what = fmt.Sprintf("a frame of %s bytes (an IPv%s packet of %d)", frame, c["ip"], size)
	}
	if size < least {
		return fmt.Sprintf("%s is too small: IP, UDP and our own header need %d", what, least)
	}
	if mtu := o.pathMTU(c); size > mtu {
		return fmt.Sprintf("%s does not fit the path's MTU of %d, and fragmentation is not measured", what,
			mtu)
	}
	return ""
}

// mixConflict is why packets of several sizes cannot be sent in turn.
func (o BaseOptions) mixConflict(c record.Factors) string {
	largest, mtu := slices.Max(c.PacketSizes()), o.pathMTU(c)
	switch {
	case c["engine"] != "native":
		return fmt.Sprintf("engine %s sends packets of one size: imix needs engine: native", c["engine"])
	case c["udp_mode"] == record.UDPCount:
		return "count mode sends and counts trains of packets of one size: imix needs udp_mode: exact"
	case largest > mtu:
		return fmt.Sprintf("imix has packets of %d bytes, which do not fit the path's MTU of %d, and "+
			"fragmentation is not measured", largest, mtu)
	}
	return ""
}
