package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/overhead"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// tunnelNames lists the tunnels of plans, and further encapsulations.
func tunnelNames() []string {
	names := slices.Clone(registry.Catalogue().Of(string(factor.Tunnel)).Levels)
	names = append(names, strings.Fields("openvpn-udp openvpn-cbc-sha1 openvpn-cbc-sha256 "+
		"openvpn-tcp-cbc-sha1 openvpn-tcp-cbc-sha256 vxlan gre ipip")...)
	for suite := range strings.FieldsSeq("aead cbc-sha1 cbc-sha256 cbc-sha384 cbc-sha512") {
		names = append(names, "esp-"+suite, "esp-"+suite+"-natt")
	}

	return names
}

// usualMTUs lists the MTUs that are often set as a precaution. The output shows how much each costs.
var usualMTUs = []int{1420, 1400, 1392, 1280}

// packetSizes lists small packet sizes. Those that fit are shown.
var packetSizes = []int{64, 200, 500, 1000}

// pppoeMTU is the MTU of a PPPoE session (RFC 2516 §7), unless both sides negotiated a larger one (RFC
// 4638).
const pppoeMTU = 1500 - overhead.PPPoE

// maxLink is 62 times the rate of the fastest Ethernet, 1.6 Tbit/s (IEEE P802.3dj).
const maxLink = 100e12

// maxPacket is the maximum length of an IP packet (RFC 791 §3.1).
const maxPacket = 65535

type limitsOptions struct {
	tunnel  string
	mtu     int // inner MTU; 0 means the tunnel's default
	link    string
	linkMTU int
	vlans   int
	pppoe   bool
	ip      int
	outerIP int
	stamps  bool
}

// transport returns the TCP header.
func (o limitsOptions) transport() overhead.Part {
	if o.stamps {
		return overhead.Part{Name: "TCP with timestamps", Bytes: overhead.TCPHeader + overhead.TCPTimestamps}
	}
	return overhead.Part{Name: "TCP", Bytes: overhead.TCPHeader}
}

func newLimitsCommand(p *program) *cobra.Command {
	var o limitsOptions
	cmd := &cobra.Command{
		Use:   "limits",
		Short: "Compute the share of a line rate that is left after headers",
		Long: `Compute, without measuring, the share of a line rate that is left after headers: the
maximum TCP goodput, the packet rates and goodput of UDP, the effect of other MTUs, and
the parts of a packet. No router can be faster; chokepoint run measures how close yours
gets. A + nests tunnels: wireguard+gre is WireGuard in GRE.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.pppoe && !cmd.Flags().Changed("line-mtu") {
				o.linkMTU = pppoeMTU
			}

			o.tunnel = tunnelCalled(o.tunnel)
			if err := o.validate(cmd.Flags().Changed); err != nil {
				return err
			}

			l, err := computeLimits(o)
			if err != nil {
				return err
			}

			return p.document(l, p.fitted(l.text()))
		},
	}
	names := tunnelNames()
	f := cmd.Flags()
	f.StringVar(&o.tunnel, "tunnel", factor.NoTunnel,
		"`NAME` of the tunnel, as in plans, or of an encapsulation: "+
			list(names))
	completeOne(cmd, "tunnel", names)
	f.IntVar(&o.mtu, "mtu", 0, "inner MTU of the tunnel in `BYTES` (default: the largest that "+
		"fits without fragments; for WireGuard, 80 less than the line's, "+
		"which leaves room for outer IPv6 headers)")
	f.StringVar(&o.link, "line", "1G", "`RATE` of the line, an Ethernet link, such as 2.5G")
	f.IntVar(&o.linkMTU, "line-mtu", 1500,
		"largest IP packet of the link in `BYTES`; with --pppoe the default is 1492")
	f.IntVar(&o.vlans, "vlans", 0, "`NUMBER` of VLAN tags on the link")
	f.BoolVar(&o.pppoe, "pppoe", false,
		"the link is a PPPoE session with an MTU of 1492, or with --line-mtu 1500 one as in RFC 4638")
	f.IntVar(&o.ip, "ip", 4, "`VERSION` of the packets that carry the payload: 4 or 6")
	f.IntVar(&o.outerIP, "outer-ip", 4, "`VERSION` of the tunnel's own packets: 4 or 6")
	f.BoolVar(&o.stamps, "timestamps", true, "TCP has timestamps, 12 bytes in each segment")
	return addJSON(cmd, "print one JSON document")
}

// validate checks the flags. given reports whether a flag is set.
func (o *limitsOptions) validate(given func(flag string) bool) error {
	rate, err := unit.ParseBitrate(o.link)
	_, stacks := overhead.Stacked(o.tunnel, overhead.V4)
	unknown := o.unknownTunnel()
	switch {
	case unknown == factor.NoTunnel:
		return app.Usage("leave it out", "--tunnel %q: none is no tunnel to join with others", o.tunnel)
	case unknown != "":
		return app.Usage(check.Choice(unknown, "tunnels", tunnelNames()),
			"--tunnel %q is not known here", unknown)
	case o.tunnel != factor.NoTunnel && !stacks:
		return app.Usage("TCP makes segments of what it carries, and no formula gives their lengths",
			"--tunnel %q: a stream is not joined to others", o.tunnel)
	case err != nil || rate < 10e3:
		return app.Usage("give bits per second with k, M or G, such as 300M",
			"--line %q is not a rate of 10k or more", o.link)
	case rate > maxLink:
		return app.Usage("no line is as fast", "--line %s is more than %s", o.link, unit.Bitrate(maxLink))
	case o.ip != 4 && o.ip != 6 || o.outerIP != 4 && o.outerIP != 6:
		return app.Usage("", "--ip and --outer-ip are 4 or 6")
	case given("mtu") && o.tunnel == factor.NoTunnel:
		return app.Usage("name one with --tunnel, or use --line-mtu",
			"--mtu is the tunnel's, and there is no tunnel")
	case given("outer-ip") && o.tunnel == factor.NoTunnel:
		return app.Usage("name one with --tunnel, or use --ip",
			"--outer-ip is the tunnel's, and there is no tunnel")
	case given("mtu"):
		err = between("", "mtu", o.mtu, 576, maxPacket)
	}

	return cmp.Or(err, between("", "line-mtu", o.linkMTU, 576, maxPacket),
		between("", "vlans", o.vlans, 0, 2))
}

// unknownTunnel returns the first tunnel of the stack that has no formula, or "" if all have one.
func (o *limitsOptions) unknownTunnel() string {
	if o.tunnel == factor.NoTunnel {
		return ""
	}

	for name := range strings.SplitSeq(o.tunnel, "+") {
		if name == factor.NoTunnel || !slices.Contains(tunnelNames(), name) {
			return cmp.Or(name, o.tunnel)
		}
	}
	return ""
}

// limits is the output of limits --json.
type limits struct {
	Format     string        `json:"format"`
	Tunnel     string        `json:"tunnel"`
	MTU        int           `json:"mtu"`                // size of the largest inner packet
	FittingMTU int           `json:"fitting_mtu"`        // largest MTU that avoids fragmentation
	BestMTU    int           `json:"best_mtu"`           // MTU in mtus with the highest TCP goodput
	Carriers   []carrier     `json:"carriers,omitempty"` // outer tunnels, innermost first
	Fragments  int           `json:"fragments"`          // number of fragments of a packet of MTU bytes
	pieces     []int         // lengths of the fragments' IP packets
	LinkRate   float64       `json:"link_bps"`
	LinkMTU    int           `json:"link_mtu"`
	Timestamps bool          `json:"tcp_timestamps"`
	TCP        packetLimit   `json:"tcp"`
	UDP        []packetLimit `json:"udp"`
	// IMIX is the limit for a mix of UDP packets. The sizes in it are rounded means. It is absent if the
	// largest packet does not fit.
	IMIX *packetLimit `json:"imix,omitempty"`
	// MTUs holds the limits for full TCP segments at other MTUs of the tunnel or, without a tunnel, of the
	// link.
	MTUs   []mtuLimit      `json:"mtus"`
	Packet []overhead.Part `json:"packet_parts"` // full TCP segment as sent, before fragmentation
}

// carrier is an outer tunnel, with the largest MTU that avoids fragmentation on the link.
type carrier struct {
	Tunnel string `json:"tunnel"`
	MTU    int    `json:"mtu"`
}

// mtuLimit is the goodput at an MTU.
type mtuLimit struct {
	MTU       int     `json:"mtu"`
	Fragments int     `json:"fragments"`
	Goodput   float64 `json:"goodput_bps"`
	Loss      float64 `json:"loss_ratio"` // lost share of the goodput at the best MTU
}

// packetLimit is the maximum rate of packets of one size.
type packetLimit struct {
	Packet  int     `json:"packet_size"` // size of the inner IP packet
	Payload int     `json:"payload_bytes"`
	Wire    int     `json:"wire_bytes"` // including preamble and gap
	Rate    float64 `json:"packet_rate_pps"`
	Goodput float64 `json:"goodput_bps"`
	Ratio   float64 `json:"line_ratio"`
}

func computeLimits(o limitsOptions) (limits, error) {
	bitrate, _ := unit.ParseBitrate(o.link) // validate has checked it
	rate := float64(bitrate)
	path := overhead.Path{
		Link:  overhead.Link{MTU: o.linkMTU, VLANs: o.vlans, PPPoE: o.pppoe},
		Inner: overhead.IP(o.ip),
	}
	if o.tunnel != factor.NoTunnel {
		path.Tunnel, _ = overhead.Stacked(o.tunnel, overhead.IP(o.outerIP))
		path.Tunnel.MTU = o.mtu
	}

	fitting := path.Tunnel.FitMTU(o.linkMTU)
	if o.mtu == 0 {
		path.Tunnel.MTU = fitting
		if path.Tunnel.Via == nil && o.tunnel != factor.NoTunnel {
			path.Tunnel.MTU = overhead.TunnelMTU(o.tunnel, o.outerIP, o.linkMTU)
		}
	}

	path.Tunnel = path.Tunnel.Over(o.linkMTU)
	mtu := path.MTU()
	if o.ip == 6 && mtu < 1280 {
		return limits{}, app.Usage("RFC 8200, section 5", "IPv6 needs an MTU of 1280 bytes, the path has %d",
			mtu)
	}

	outer := path.Tunnel.Outer(mtu)
	most := maxPacket
	if o.outerIP == 6 {
		most += overhead.IPv6Header // the IPv6 payload length excludes the header (RFC 8200 §3)
	}

	if o.tunnel != factor.NoTunnel && outer > most {
		return limits{}, app.Usage("",
			"--mtu %d: the tunnel's packets would be of %d bytes, IP has %d at most", mtu, outer, most)
	}

	l := limits{
		Format:     "chokepoint-limits/1",
		Tunnel:     o.tunnel,
		MTU:        mtu,
		FittingMTU: fitting,
		LinkRate:   rate,
		LinkMTU:    o.linkMTU,
		pieces:     path.Tunnel.Fragments(mtu, o.linkMTU),
		Timestamps: o.stamps,
		TCP:        limitOf(path, rate, o.transport().Bytes, mtu),
		BestMTU:    fitting,
	}
	l.Fragments = max(1, len(l.pieces))
	names := strings.Split(o.tunnel, "+")
	for via := path.Tunnel.Via; via != nil; via = via.Via {
		names = names[1:]
		l.Carriers = append(l.Carriers, carrier{names[0], via.MTU})
	}

	l.Packet = path.Whole(mtu, o.transport())
	l.addMTUs(o, path, rate)
	for _, size := range append(slices.Clone(packetSizes), mtu) {
		if size <= mtu {
			l.UDP = append(l.UDP, limitOf(path, rate, overhead.UDPHeader, size))
		}
	}

	sizes := factor.IMIXSizes(strconv.Itoa(o.ip))
	if slices.Max(sizes) <= mtu {
		l.IMIX = new(limitOf(path, rate, overhead.UDPHeader, sizes...))
	}

	return l, nil
}

// addMTUs adds the limits at other MTUs. The path has the requested MTU.
func (l *limits) addMTUs(o limitsOptions, path overhead.Path, rate float64) {
	least := map[int]int{4: 576, 6: 1280}[o.ip]
	if l.FittingMTU < least {
		return
	}

	whole := path.BestMTU(least, path.Inner.Header()+o.transport().Bytes)
	list := append([]int{l.MTU, l.FittingMTU, whole}, usualMTUs...)
	slices.Sort(list)
	highest := 0.0
	for _, mtu := range slices.Backward(slices.Compact(list)) {
		p := path
		if mtu > l.LinkMTU && mtu != l.MTU || mtu < least {
			continue
		}

		p.Tunnel.MTU = mtu
		at := limitOf(p, rate, o.transport().Bytes, mtu)
		l.MTUs = append(l.MTUs, mtuLimit{
			MTU:       mtu,
			Goodput:   at.Goodput,
			Fragments: max(1, len(p.Tunnel.Fragments(mtu, l.LinkMTU))),
		})
		if at.Goodput > highest {
			l.BestMTU = mtu
			highest = at.Goodput
		}
	}

	for i := range l.MTUs {
		l.MTUs[i].Loss = 1 - l.MTUs[i].Goodput/highest
	}
}

// limitOf returns the limit for a repeating sequence of packets with the given sizes. header is the length of
// their transport header in bytes.
func limitOf(path overhead.Path, rate float64, header int, sizes ...int) packetLimit {
	n := float64(len(sizes))
	packet := 0
	payload := 0
	wire := 0
	for _, size := range sizes {
		packet += size
		payload += max(0, size-path.Inner.Header()-header)
		wire += path.Bytes(size, overhead.LayerWire)
	}

	mean := func(sum int) int { return int(math.Round(float64(sum) / n)) }
	p := packetLimit{Packet: mean(packet), Payload: mean(payload), Wire: mean(wire)}
	if wire > 0 {
		p.Rate = rate / 8 / float64(wire) * n
	}

	p.Goodput = p.Rate * float64(payload) / n * 8
	p.Ratio = p.Goodput / rate
	return p
}

func (l limits) text() string {
	var b builder
	b.printf("tunnel %s, packets of up to %d bytes, on a line of %s with an MTU of %d\n",
		l.Tunnel, l.MTU, unit.Bitrate(l.LinkRate), l.LinkMTU)
	for _, c := range l.Carriers {
		b.printf("  carried by %s with an MTU of %d\n", c.Tunnel, c.MTU)
	}

	b.WriteString("\n")
	rows := heading(" | packet | payload | on the wire | packets | goodput | of the line | ")
	row := func(name string, p packetLimit) {
		rows.add(name, fmt.Sprint(p.Packet, " B"), fmt.Sprint(p.Payload, " B"),
			fmt.Sprint(p.Wire, " B"), unit.PacketRate(p.Rate), unit.Bitrate(p.Goodput),
			unit.Percent(p.Ratio), "")
	}
	row("TCP", l.TCP)
	for _, p := range l.UDP {
		row("UDP", p)
	}

	if l.IMIX != nil {
		row("UDP, IMIX", *l.IMIX)
	}

	b.WriteString(table(rows, tabwriter.AlignRight))
	if len(l.MTUs) > 0 {
		rows = heading(" | MTU | TCP goodput | less | fragments | ")
		for _, m := range l.MTUs {
			var notes []string
			less := unit.Percent(m.Loss)
			if m.MTU == l.BestMTU {
				notes = append(notes, "best")
				less = "–"
			}

			if m.MTU == l.FittingMTU {
				notes = append(notes, "largest whole")
			}

			rows.add(list(notes), fmt.Sprint(m.MTU, " B"),
				unit.Bitrate(m.Goodput), less, m.Fragments, "")
		}

		b.WriteString("\n" + trimmed(table(rows, tabwriter.AlignRight)))
	}

	whole := "a full segment on the wire"
	if l.Fragments > 1 {
		whole = fmt.Sprintf(
			"a full segment before it is cut: the wire has %d fragments, IP packets of %s bytes",
			l.Fragments, list(each(l.pieces, strconv.Itoa)))
	}

	b.printf("\n%s\n%s", whole, picture(l.Packet))
	switch {
	case l.Fragments > 1:
		b.printf(
			"\nFull packets are sent as %d fragments; the largest that fits whole has %d bytes.\n",
			l.Fragments, l.FittingMTU)
	case l.FittingMTU > l.MTU:
		b.printf("\nPackets of up to %d bytes would fit whole.\n", l.FittingMTU)
	}

	return b.String()
}

// picture draws a packet: one row per layer, with the offsets of its first and last byte.
func picture(parts []overhead.Part) string {
	rows := heading(" | bytes | from | to | ")
	at := 0
	whole := 0
	for _, p := range parts {
		whole += p.Bytes
	}

	for _, p := range parts {
		share := .9 * float64(p.Bytes) / float64(whole) // to fit 80 columns
		rows.add("  "+p.Name, p.Bytes, at, at+p.Bytes-1, bar(share))
		at += p.Bytes
	}

	return trimmed(table(rows, 0))
}
