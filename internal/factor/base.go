package factor

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// These are the names of the factors that this package declares, and of factors of knobs and engines that
// other factors depend on.
const (
	Topology     Name = "topology"
	Tunnel       Name = "tunnel"
	MTU          Name = "mtu"
	OuterIP      Name = "outer_ip"
	Tunnels      Name = "tunnels"
	IP           Name = "ip"
	NAT          Name = "nat"
	Offload      Name = "offload"
	Protocol     Name = "protocol"
	Streams      Name = "streams"
	Direction    Name = "direction"
	FrameSize    Name = "frame_size"
	PacketSize   Name = "packet_size"
	Rate         Name = "rate"
	UDPMode      Name = "udp_mode"
	UDPGSO       Name = "udp_gso"
	Congestion   Name = "congestion"
	Pacing       Name = "pacing"
	MSS          Name = "mss"
	SocketBuffer Name = "socket_buffer"
	Engine       Name = "engine"
	DSCP         Name = "dscp"
	VCPUs        Name = "vcpus"
	Memory       Name = "memory"
	Mitigations  Name = "mitigations"
	Firmware     Name = "firmware"
	Copy         Name = "copy"

	FlowSize       Name = "flow_size"
	ConnectionRate Name = "connection_rate"
	Arrivals       Name = "arrivals"
	RequestSize    Name = "request_size"
	ResponseSize   Name = "response_size"

	LinkMTU Name = "link_mtu"
	Queue   Name = "queue"
	Shaper  Name = "shape"
	Policer Name = "policer"
	VLAN    Name = "vlan"
	WAN     Name = "wan"
)

// These are the levels that other packages refer to.
const (
	NoTunnel = "none"

	TCP = "tcp"
	UDP = "udp"

	Up   = "up"   // client to server
	Down = "down" // server to client
	Both = "both"

	UDPExact = "exact" // records the sequence number and time of each datagram
	UDPCount = "count" // counts datagrams by length; several may be sent or received per system call

	Off = "off"
	On  = "on"

	NATForward = "forward" // the router forwards ports of its outer address to the client

	Native = "native" // chokepoint's own engine

	CipherEngine = "cipher" // measures the ciphers of one node and sends no traffic
)

// Sends reports whether the cell's engine sends traffic over a path.
func Sends(c Cell) bool { return !Engine.Is(c, CipherEngine) }

// sending implements Applies for factors that concern only traffic.
func sending(c Cell) (bool, string) {
	if !Sends(c) {
		return false, "engine cipher sends nothing"
	}
	return true, ""
}

// Header sizes in bytes that determine the smallest UDP packet, and Ethernet's overhead.
const (
	ipv4Header  = 20
	ipv6Header  = 40
	udpHeader   = 8
	stampHeader = 16 // size of the header with our sequence number and flags in each datagram

	// EthernetBytes is the overhead of an untagged Ethernet frame: 14 bytes of header and 4 of frame check
	// sequence (IEEE 802.3).
	EthernetBytes = 18
)

// These are the limits of the TCP factors, in bytes: the kernel's minimum segment (TCP_MIN_MSS), the largest
// segment that fits in an IP packet, the kernel's minimum receive buffer, and a buffer far larger than any
// path needs.
const (
	minSegment, maxSegment = 88, 65535 - ipv4Header - 20
	minBuffer, maxBuffer   = 4608, 1 << 30
)

// These limit a virtual router's resources. Memory is in MB; with less than MinMemory, the image does not
// boot.
const (
	MaxVCPUs  = 64
	MinMemory = 128
	MaxMemory = 64 << 10
)

// maxStreams is the maximum number of UDP streams. For TCP, each engine has a limit of its own.
const maxStreams = 10_000

// frameSizes lists the Ethernet frame sizes of RFC 2544, section 9.1, in bytes.
var frameSizes = [...]string{"64", "128", "256", "512", "1024", "1280", "1518"}

// Options holds the levels that other packages define.
type Options struct {
	Shapes      []Shape  // the first is the default
	Tunnels     []string // the default is NoTunnel, which must be listed
	Engines     []string // the first is the default
	Congestions []string // the first is the default
	IPs         []string // IP versions, the default first; nil means 4 and 6
	// TunnelMTU returns the default inner MTU in bytes of a kind of tunnel over an IP version. If TunnelMTU
	// is nil, the inner MTU leaves 80 bytes for the outer headers, as in wg-quick(8).
	TunnelMTU  func(tunnel string, outerIP, linkMTU int) int
	MaxTunnels int // maximum number of parallel tunnels in a lab
}

// Base returns the factors that every cell has. The default of a factor may depend on the factors before it.
func Base(o Options) []Declaration {
	if o.TunnelMTU == nil {
		o.TunnelMTU = func(_ string, _, linkMTU int) int { return linkMTU - 80 }
	}

	if o.IPs == nil {
		o.IPs = []string{"4", "6"}
	}

	var topologies []string
	for _, s := range o.Shapes {
		topologies = append(topologies, s.Name)
	}

	tunnelled := Beside(Tunnel, "there is no tunnel", func(t string) bool { return t != NoTunnel && t != "" })
	udp := Beside(Protocol, "protocol is not udp", func(p string) bool { return p == UDP })
	tcp := Beside(Protocol, "protocol is not tcp", func(p string) bool { return p == TCP })
	itself := func(level string) string { return level }
	return []Declaration{
		choice(topologies, Declaration{
			Name:    "topology",
			Doc:     "shape of the lab",
			Kind:    Path,
			Hard:    true,
			Rank:    1,
			Leading: true,
			Quiet:   true,
			Short:   itself,
		}),
		choice(o.Tunnels, Declaration{
			Name:    "tunnel",
			Doc:     "tunnel that carries the traffic, or none",
			Kind:    Path,
			Applies: sending,
			Without: &Without{NoTunnel, "of the same without tunnel"},
			Follow:  []Name{MTU, OuterIP, Tunnels},
			Rank:    2,
			Leading: true,
			Short:   insteadOf(NoTunnel, "no tunnel", itself),
			Long:    insteadOf(NoTunnel, "no tunnel", tunnelName),
		}),
		{
			Name:    "mtu",
			Tunable: true,
			Unit:    "bytes",
			Doc:     "MTU inside the tunnel",
			Kind:    Path,
			Base:    true,
			Parse:   Whole(minIPv4MTU, 65535),
			Applies: tunnelled,
			Derive: func(c Cell) string {
				outer := cmp.Or(OuterIP.Number(c), 4)
				return strconv.Itoa(o.TunnelMTU(Tunnel.Of(c), outer, UnderlayMTU(c)))
			},
			Conflict:  mtuConflict,
			Dependent: true,
			Rank:      5,
			Long:      phrase("MTU %"),
		},
		{
			Name:      "outer_ip",
			Doc:       "IP version of the tunnel's outer packets; 4 if not given",
			Kind:      Path,
			Levels:    []string{"4", "6"},
			Applies:   tunnelled,
			Conflict:  outerConflict,
			Without:   &Without{"4", "of the same with IPv4 outside"},
			Follow:    []Name{MTU},
			Dependent: true,
			Rank:      4,
			Short:     phrase("IPv% outside"),
		},
		{
			Name:      "tunnels",
			Doc:       "number of parallel tunnels, over which the streams are spread; 1 if not given",
			Kind:      Path,
			Parse:     Whole(1, int64(max(o.MaxTunnels, 1))),
			Applies:   tunnelled,
			Conflict:  tunnelsConflict,
			Without:   &Without{"1", "of the same through one tunnel"},
			Scales:    true,
			Dependent: true,
			Rank:      3,
			Short:     counted("tunnel"),
		},
		choice(o.IPs, Declaration{
			Name:     "ip",
			Doc:      "IP version of the packets that carry the payload",
			Kind:     Path,
			Conflict: o.ipConflict,
			Without:  &Without{"4", "of the same with IPv4"},
			Rank:     9,
			Applies:  sending,
			Leading:  true,
			Short:    phrase("IPv%"),
		}),
		choice([]string{Off, "masquerade", NATForward}, Declaration{
			Name:     "nat",
			Kind:     Path,
			Conflict: natConflict,
			Target:   FirstOfWAN,
			Applies:  sending,
			Doc: "IPv4 address translation on the router: none, of outbound sources (masquerade), " +
				"or a port forward inbound; IPv6 is never translated",
			Value:   insteadOf(Off, "", itself),
			Without: &Without{Off, "of the same without address translation"},
			Rank:    7,
			Short:   itself,
			Long:    insteadOf(Off, "no NAT", phrase("NAT %")),
		}),
		choice([]string{"wire", "super"}, Declaration{
			Name:    "offload",
			Doc:     "size of packets on virtual links: as on a wire, or up to 64 KiB (super)",
			Kind:    Path,
			Target:  EveryNode,
			Applies: sending,
			Without: &Without{"wire", "of the same with packets as on a wire"},
			Rank:    20,
		}),
		choice([]string{TCP, UDP}, Declaration{
			Name:    "protocol",
			Doc:     "transport protocol",
			Kind:    Load,
			Applies: sending,
			Rank:    8,
			Leading: true,
			Short:   strings.ToUpper,
		}),
		{
			Name:    "streams",
			Doc:     "parallel flows in each direction",
			Kind:    Load,
			Base:    true,
			Default: "1",
			Applies: sending,
			Parse:   Whole(1, maxStreams),
			Scales:  true,
			Rank:    12,
			Leading: true,
			Short:   counted("stream"),
		},
		choice([]string{Up, Down, Both}, Declaration{
			Name:    "direction",
			Doc:     "direction of the data; up is from client to server",
			Kind:    Load,
			Rank:    13,
			Leading: true,
			Applies: sending,
			Short:   itself,
		}),
		{
			Name:    "frame_size",
			Unit:    "bytes, imix, rfc2544",
			Kind:    Load,
			Applies: udp,
			Doc: "size of the untagged Ethernet frame, including the check sequence; rfc2544 " +
				"stands for the seven sizes of that standard",
			Parse:     OrWord(IMIX, Whole(64, 65535)),
			Sets:      map[string][]string{"rfc2544": frameSizes[:]},
			Dependent: true,
			Rank:      11,
			Short:     insteadOf(IMIX, "IMIX", phrase("% B frames")),
			Long:      insteadOf(IMIX, "IMIX frames", phrase("%-byte frames")),
		},
		{
			Name:    "packet_size",
			Unit:    "bytes, imix",
			Doc:     "size of the IP packet, including its header",
			Kind:    Load,
			Base:    true,
			Parse:   OrWord(IMIX, Whole(1, 65535)),
			Applies: udp,
			Derive: func(c Cell) string {
				if FrameSize.Is(c, IMIX) {
					return IMIX
				}

				frame := FrameSize.Number(c)
				if frame > 0 {
					return strconv.Itoa(frame - EthernetBytes)
				}

				return strconv.Itoa(o.pathMTU(c))
			},
			Conflict: o.sizeConflict,
			Says:     FrameSize,
			Rank:     10,
			Short:    insteadOf(IMIX, "IMIX", phrase("% B")),
			Long:     insteadOf(IMIX, "IMIX packets", phrase("%-byte packets")),
		},
		{
			Name:      "rate",
			Unit:      "bit/s",
			Doc:       "rate of UDP payload, all streams together; flat: as fast as possible",
			Kind:      Load,
			Base:      true,
			Default:   Flat,
			Applies:   udp,
			Dependent: true,
			Rank:      14,
			Parse:     rateOr("flat, a bit rate such as 300M, or a share such as 90% of found", Flat),
		},
		{
			Name:    "udp_mode",
			Kind:    Load,
			Applies: udp,
			Doc: "how the receiver counts: each datagram with its order and delay (exact), or by the " +
				"total length at the highest rate (count); exact if not given",
			Levels: []string{UDPExact, UDPCount},
		},
		{
			Name:    "udp_gso",
			Kind:    Load,
			Applies: udp,
			Doc: "whether the sender may pass a batch of datagrams to the kernel in one write (UDP " +
				"GSO); auto if not given",
			Levels: []string{"auto", Off},
		},
		choice(o.Congestions, Declaration{
			Name: "congestion",
			Doc: "TCP congestion control: one of these or another that the kernel offers; several joined " +
				"by + are assigned to the streams in turn",
			Kind:      Load,
			Applies:   tcp,
			Parse:     severalOf(Formed(congestionForm, "the name of a congestion control, such as cubic")),
			Dependent: true,
			Rank:      21,
		}),
		{
			Name:    "pacing",
			Unit:    "bit/s",
			Kind:    Load,
			Applies: tcp,
			Doc:     "rate to which the kernel paces TCP payload, all streams together",
			Parse:   rateOr("a bit rate such as 300M, or a share such as 90% of found"),
		},
		{
			Name:    "mss",
			Tunable: true,
			Unit:    "bytes",
			Doc:     "requested TCP maximum segment size; derived from the path's MTU if not given",
			Kind:    Load,
			Parse:   Whole(minSegment, maxSegment),
			Applies: tcp,
		},
		{
			Name:    "socket_buffer",
			Tunable: true,
			Unit:    "bytes",
			Kind:    Load,
			Parse:   Whole(minBuffer, maxBuffer),
			Applies: tcp,
			Doc: "size of each TCP socket's send and receive buffer; tuned by the kernel if not " +
				"given",
		},
		{
			Name:    "ecn",
			Doc:     "whether both ends request explicit congestion notification",
			Kind:    Load,
			Levels:  []string{On, Off},
			Applies: tcp,
			// The side that opens the connection requests ECN, and the other side agrees.
			Target: BothEnds,
			Knob:   "sysctl:net.ipv4.tcp_ecn",
			Value:  func(level string) string { return map[string]string{On: "1", Off: "0"}[level] },
		},
		choice(o.Engines, Declaration{
			Name: "engine",
			Kind: Activity,
			Rank: 22,
			Doc:  "load generator; cipher sends no load and measures the speed of one node's ciphers",
		})}
}

// Further returns the factors that come after the factors of the engines in the catalogue.
func Further() []Declaration {
	copies := []string{"a", "b", "c", "d"} // names for identical cells
	return []Declaration{
		{
			Name:   "vcpus",
			Unit:   "CPUs",
			Doc:    "number of vCPUs that each virtual router boots with; the lab's number if not given",
			Kind:   Path,
			Hard:   true,
			Scales: true,
			Parse:  Whole(1, MaxVCPUs),
			Needs:  NeedsRouter,
			Short:  counted("vCPU"),
		},
		{
			Name:  "memory",
			Unit:  "MB",
			Doc:   "memory that each virtual router boots with; the lab's size if not given",
			Kind:  Path,
			Hard:  true,
			Parse: Whole(MinMemory, MaxMemory),
			Needs: NeedsRouter,
			Short: phrase("% MB of memory"),
		},
		{
			Name: "mitigations",
			Doc: "mitigations of CPU vulnerabilities (Spectre and others) in each virtual router's kernel: " +
				"the kernel's own choice (auto) or none; if not given, auto with KVM and off in emulation",
			Kind:    Path,
			Hard:    true,
			Levels:  []string{"auto", Off},
			Needs:   NeedsRouter,
			Without: &Without{Off, "of the same without mitigations"},
		},
		{
			Name: "firmware",
			Unit: "part of the version string",
			Doc: "firmware of a real router, by its version string: if the router reports another " +
				"version, the lab file's command or you install the firmware before the first trial of " +
				"that level; as found if not given",
			Kind:  Path,
			Hard:  true,
			Parse: firmwareLevel,
			Needs: NeedsRouter,
		},
		{
			Name:    "dscp",
			Doc:     "DSCP (differentiated services code point) of the packets sent",
			Kind:    Load,
			Parse:   Whole(0, 63),
			Applies: sending,
		},
		{
			Name:   "copy",
			Kind:   Load,
			Levels: copies,
			Doc: "changes nothing: cells that differ only in copy show the noise of the method itself " +
				"(A/A test)",
			Without: &Without{"a", "of the same, measured beside it"},
		},
	}
}

// choice completes the declaration of a factor with a closed set of levels. The first level is the default.
func choice(levels []string, d Declaration) Declaration {
	d.Base, d.Levels = true, levels
	if len(levels) > 0 {
		d.Default = levels[0]
	}

	return d
}

// Beside implements Applies for a factor that has a meaning only with some levels of another factor. why is
// the reason to give with the other levels.
func Beside(name Name, why string, ok func(level string) bool) func(Cell) (bool, string) {
	return func(c Cell) (bool, string) {
		if ok(name.Of(c)) {
			return true, ""
		}
		return false, why
	}
}

// phrase returns a function that replaces "%" in form with the level.
func phrase(form string) func(string) string {
	return func(level string) string { return strings.Replace(form, "%", level, 1) }
}

// counted returns a function that describes a number of things: "1 stream", "4 streams".
func counted(what string) func(string) string {
	return insteadOf("1", "1 "+what, phrase("% "+what+"s"))
}

// insteadOf returns a function that returns words for the given level and calls others for any other
// level.
func insteadOf(level, words string, others func(string) string) func(string) string {
	return func(l string) string {
		if l == level {
			return words
		}
		return others(l)
	}
}

func tunnelName(level string) string {
	if rest, ok := strings.CutPrefix(level, "wireguard"); ok {
		return "WireGuard" + strings.ReplaceAll(rest, "-", ", ")
	}

	if rest, ok := strings.CutPrefix(level, "esp"); ok {
		return "IPsec ESP" + strings.Replace(rest, "-", ", ", 1)
	}
	return level
}

// congestionForm matches the names that the kernel accepts for congestion control algorithms
// (TCP_CA_NAME_MAX). Whether a node's kernel has the algorithm is checked in the lab.
var congestionForm = check.Pattern(`^[a-z][a-z0-9_]{1,14}$`)

// severalOf returns a Declaration.Parse for distinct levels joined by "+". The function parse parses each
// level.
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

func (o Options) pathMTU(c Cell) int {
	i := slices.IndexFunc(o.Shapes, func(s Shape) bool { return Topology.Is(c, s.Name) })
	return PathMTU(o.Shapes[max(i, 0)], c)
}

// mtuConflict returns an error text if a derived inner MTU is impossible. If the plan states the MTU, Parse
// has already checked it.
func mtuConflict(c Cell) string {
	if mtu, err := strconv.Atoi(MTU.Of(c)); err == nil && mtu < minIPv4MTU {
		return fmt.Sprintf("the underlay leaves %d bytes inside the tunnel, and IPv4 needs %d", mtu,
			minIPv4MTU)
	}
	return ""
}

// outerConflict returns an error text if the MTU of the links is too small for IPv6 outside the tunnel.
func outerConflict(c Cell) string {
	mtu := UnderlayMTU(c)
	if OuterIP.Is(c, "6") && mtu < minIPv6MTU {
		return fmt.Sprintf("IPv6 outside the tunnel needs links of %d bytes or more, there are some of %d",
			minIPv6MTU, mtu)
	}
	return ""
}

// tunnelsConflict returns an error text if a tunnel would have no stream: stream n uses tunnel n modulo
// the number of tunnels.
func tunnelsConflict(c Cell) string {
	n := Tunnels.Number(c)
	streams := Streams.Number(c)
	switch {
	case n <= 1 || streams == 0:
		return ""
	case streams == 1:
		return fmt.Sprintf("%d tunnels need as many streams, there is 1", n)
	case streams < n:
		return fmt.Sprintf("%d tunnels need as many streams, there are %d", n, streams)
	case Engine.Is(c, "iperf3"):
		return "iperf3 sends all its streams to one address, and each tunnel leads to another"
	}

	return ""
}

func (o Options) ipConflict(c Cell) string {
	mtu := min(o.pathMTU(c), UnderlayMTU(c))
	if IP.Is(c, "6") && mtu < minIPv6MTU {
		return fmt.Sprintf("IPv6 needs an MTU of %d bytes or more, the path has %d", minIPv6MTU, mtu)
	}
	return ""
}

func natConflict(c Cell) string {
	tunnelled := !Tunnel.Is(c, NoTunnel)
	forward := NAT.Is(c, NATForward)
	switch {
	case NAT.Is(c, Off):
		return ""
	case IP.Is(c, "6") && forward:
		return "NAT66 is off: ports are forwarded with IPv4 only"
	case !Topology.Is(c, "forward", "site-to-site"):
		return fmt.Sprintf("topology %s forwards nothing that could be translated", Topology.Of(c))
	case tunnelled && forward:
		return "a port forward leads to the client's own address, past the tunnel"
	case tunnelled && Topology.Is(c, "site-to-site"):
		return "the tunnel between the routers carries the traffic past the address translation"
	}

	return ""
}

// sizeConflict returns an error text if the cell's packet size is impossible. The packet size may be derived
// from a frame size.
func (o Options) sizeConflict(c Cell) string {
	mtu := o.pathMTU(c)
	if PacketSize.Is(c, IMIX) {
		switch largest := slices.Max(c.PacketSizes()); {
		case !Engine.Is(c, Native, "xdp"):
			return fmt.Sprintf("engine %s sends packets of one size: imix needs engine: native or xdp",
				Engine.Of(c))
		case UDPMode.Is(c, UDPCount):
			return "count mode sends and counts batches of packets of one size: imix needs udp_mode: exact"
		case largest > mtu:
			return fmt.Sprintf("imix has packets of %d bytes, which do not fit the path's MTU of %d, and "+
				"fragmentation is not measured", largest, mtu)
		}
		return ""
	}

	size, err := strconv.Atoi(PacketSize.Of(c))
	if err != nil {
		return ""
	}

	header := ipv4Header
	if IP.Is(c, "6") {
		header = ipv6Header
	}

	least := header + udpHeader + stampHeader
	what := fmt.Sprintf("an IPv%s packet of %d bytes", IP.Of(c), size)
	if FrameSize.In(c) {
		what = fmt.Sprintf("a frame of %s bytes (an IPv%s packet of %d)", FrameSize.Of(c), IP.Of(c), size)
	}

	switch {
	case size < least:
		return fmt.Sprintf("%s is too small: IP, UDP and our own header need %d", what, least)
	case size > mtu:
		return fmt.Sprintf("%s does not fit the path's MTU of %d, and fragmentation is not measured", what,
			mtu)
	}

	return ""
}

// InUserspace reports whether a process on the node handles the packets of this kind of tunnel, through a
// TUN device.
func InUserspace(tunnel string) bool {
	return strings.HasSuffix(tunnel, "-userspace") || strings.HasPrefix(tunnel, "openvpn")
}
