package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/overhead"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// tunnelNames are those of plans, and of encapsulations that no tunnel of a plan has.
func tunnelNames() []string {
	names := slices.Clone(registry.Catalogue().Of(string(factor.Tunnel)).Levels)
	return append(names, "esp-aead", "esp-aead-natt", "esp-cbc-sha256", "openvpn-udp")
}

// packetSizes are those of the table of small packets, where they fit.
var packetSizes = []int{64, 200, 500, 1000}

type limitsOptions struct {
	tunnel  string
	mtu     int // inner; 0 = the largest that fits
	link    string
	linkMTU int
	vlans   int
	pppoe   bool
	ip      int
	outerIP int
}

func newLimitsCommand(p *program) *cobra.Command {
	var o limitsOptions
	cmd := &cobra.Command{
		Use:   "limits [--tunnel NAME] [--mtu BYTES] [--link RATE] [--json]",
		Short: "Compute what headers leave of a line rate, without measuring",
		Long: "Compute what headers leave of a line rate, without measuring: the largest\n" +
			"goodput of TCP with timestamps, and the packet rates and goodput of UDP.\n" +
			"No router can be faster; how far yours is from it is what run measures.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(cmd.Flags().Changed("mtu")); err != nil {
				return err
			}
			l, err := computeLimits(o)
			if err != nil {
				return err
			}
			return p.document(l, l.text())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.tunnel, "tunnel", factor.NoTunnel,
		"`NAME` of the tunnel, as plans have it, or of an encapsulation:\n"+
			strings.Join(tunnelNames(), ", "))
	cmd.RegisterFlagCompletionFunc("tunnel", cobra.FixedCompletions(tunnelNames(),
		cobra.ShellCompDirectiveNoFileComp))
	f.IntVar(&o.mtu, "mtu", 0, "inner MTU of the tunnel in `BYTES`; left out: the largest that\nfits "+
		"without fragments")
	f.StringVar(&o.link, "link", "1G", "line `RATE` of the Ethernet link, such as 2.5G")
	f.IntVar(&o.linkMTU, "link-mtu", 1500, "largest IP packet of the link in `BYTES`")
	f.IntVar(&o.vlans, "vlans", 0, "`NUMBER` of VLAN tags on the link")
	f.BoolVar(&o.pppoe, "pppoe", false, "the link is a PPPoE session; its usual MTU is 1492")
	f.IntVar(&o.ip, "ip", 4, "`VERSION` of the packets that carry the payload: 4 or 6")
	f.IntVar(&o.outerIP, "outer-ip", 4, "`VERSION` of the tunnel's own packets: 4 or 6")
	return addJSON(cmd, "print one JSON document")
}

// validate judges the flags; mtuGiven says that --mtu is one of them.
func (o *limitsOptions) validate(mtuGiven bool) error {
	rate, err := unit.ParseBitrate(o.link)
	switch {
	case !slices.Contains(tunnelNames(), o.tunnel):
		return &usageError{fmt.Sprintf("--tunnel %q is not known here", o.tunnel), "tunnels: " +
			strings.Join(tunnelNames(), ", ")}
	case err != nil || rate <= 0:
		return &usageError{fmt.Sprintf("--link %q is not a rate", o.link),
			"give bits per second with k, M or G, such as 300M"}
	case o.ip != 4 && o.ip != 6 || o.outerIP != 4 && o.outerIP != 6:
		return &usageError{"--ip and --outer-ip are 4 or 6", ""}
	case o.linkMTU < 576 || o.linkMTU > 65535:
		return &usageError{fmt.Sprintf("--link-mtu %d is not from 576 to 65535", o.linkMTU), ""}
	case mtuGiven && o.tunnel == factor.NoTunnel:
		return &usageError{"--mtu is the tunnel's, and there is no tunnel",
			"name one with --tunnel, or use --link-mtu"}
	case mtuGiven && (o.mtu < 576 || o.mtu > 65535):
		return &usageError{fmt.Sprintf("--mtu %d is not from 576 to 65535", o.mtu), ""}
	case o.vlans < 0 || o.vlans > 2:
		return &usageError{fmt.Sprintf("--vlans %d is not from 0 to 2", o.vlans), ""}
	}
	return nil
}

// limits is the document of limits --json.
type limits struct {
	Format     string        `json:"format"`
	Tunnel     string        `json:"tunnel"`
	MTU        int           `json:"mtu"`         // largest inner packet
	FittingMTU int           `json:"fitting_mtu"` // largest one that is not fragmented
	Fragments  int           `json:"fragments"`   // of a packet of MTU bytes
	LinkRate   float64       `json:"link_bps"`
	LinkMTU    int           `json:"link_mtu"`
	TCP        packetLimit   `json:"tcp"`
	UDP        []packetLimit `json:"udp"`
	// of a mix of UDP packets; its sizes are means, rounded; left out where its largest packet does not fit
	IMIX *packetLimit `json:"imix,omitempty"`
}

// packetLimit is what the line carries of packets of one size.
type packetLimit struct {
	Packet  int     `json:"packet_size"` // inner IP packet
	Payload int     `json:"payload_bytes"`
	Wire    int     `json:"wire_bytes"` // byte times, preamble and gap included
	Rate    float64 `json:"packet_rate_pps"`
	Goodput float64 `json:"goodput_bps"`
	Ratio   float64 `json:"line_ratio"`
}

func computeLimits(o limitsOptions) (limits, error) {
	bitrate, _ := unit.ParseBitrate(o.link) // validate has read it
	rate := float64(bitrate)
	path := overhead.Path{Link: overhead.Link{MTU: o.linkMTU, VLANs: o.vlans, PPPoE: o.pppoe},
		Inner: overhead.IP(o.ip)}
	path.Tunnel, _ = overhead.Named(o.tunnel)
	if path.Tunnel.Kind != overhead.Plain {
		path.Tunnel.OuterIP, path.Tunnel.MTU = overhead.IP(o.outerIP), o.mtu
	}
	fitting := path.Tunnel.FitMTU(o.linkMTU)
	if o.mtu == 0 {
		path.Tunnel.MTU = fitting
	}
	mtu := path.MTU()
	if o.ip == 6 && mtu < 1280 {
		return limits{}, &usageError{fmt.Sprintf("IPv6 needs an MTU of 1280 bytes, the path has %d", mtu),
			"RFC 8200, section 5"}
	}
	l := limits{Format: record.Format, Tunnel: o.tunnel, MTU: mtu, FittingMTU: fitting, LinkRate: rate,
		LinkMTU: o.linkMTU, Fragments: max(1, len(path.Tunnel.Fragments(mtu, o.linkMTU))),
		TCP: limitOf(path, rate, overhead.TCPHeader+overhead.TCPTimestamps, mtu)}
	for _, size := range append(slices.Clone(packetSizes), mtu) {
		if size <= mtu {
			l.UDP = append(l.UDP, limitOf(path, rate, overhead.UDPHeader, size))
		}
	}
	if sizes := factor.IMIXSizes(strconv.Itoa(o.ip)); slices.Max(sizes) <= mtu {
		l.IMIX = new(limitOf(path, rate, overhead.UDPHeader, sizes...))
	}
	return l, nil
}

// limitOf is the limit of packets of such sizes in turn, with so many bytes of transport header.
func limitOf(path overhead.Path, rate float64, header int, sizes ...int) packetLimit {
	n, packet, payload, wire := float64(len(sizes)), 0, 0, 0
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
	var b strings.Builder
	fmt.Fprintf(&b, "tunnel %s, packets of up to %d bytes, on a line of %s with an MTU of %d\n\n",
		l.Tunnel, l.MTU, unit.Bitrate(l.LinkRate), l.LinkMTU)
	rows := [][]string{{"", "packet", "payload", "on the wire", "packets", "goodput", "of the line", ""}}
	row := func(name string, p packetLimit) {
		rows = append(rows, []string{name, fmt.Sprint(p.Packet, " B"), fmt.Sprint(p.Payload, " B"),
			fmt.Sprint(p.Wire, " B"), unit.PacketRate(p.Rate).String(), unit.Bitrate(p.Goodput).String(),
			unit.Percent(p.Ratio), ""})
	}
	row("TCP", l.TCP)
	for _, p := range l.UDP {
		row("UDP", p)
	}
	if l.IMIX != nil {
		row("UDP, IMIX", *l.IMIX)
	}
	b.WriteString(table(rows, tabwriter.AlignRight))
	switch {
	case l.Fragments > 1:
		fmt.Fprintf(&b, "\nFull packets are sent as %d fragments; the largest that fits whole has %d "+
			"bytes.\n", l.Fragments, l.FittingMTU)
	case l.FittingMTU > l.MTU:
		fmt.Fprintf(&b, "\nPackets of up to %d bytes would fit whole.\n", l.FittingMTU)
	}
	return b.String()
}
