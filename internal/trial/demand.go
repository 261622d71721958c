package trial

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Ports on which the endpoints listen. A port forward covers 20000 to 20999.
const (
	loadPort  = 20000
	echoPort  = 20900
	checkPort = 20990
)

// demand describes what a row requires of a lab. It is plain data, computed from the row's factors.
type demand struct {
	tunnel      lab.TunnelSpec
	ip          int
	nat         string
	settings    []record.Setting
	cpus        map[string][]int // cores for the engine, by node
	engine      string
	load        record.Load
	wantMTU     int
	bypass      bool // the load bypasses the tunnel, which is set up nevertheless
	ports       lab.DataPorts
	probeOpener string     // end that opens the probe's connection during the load: "near" or "far"
	hears       netip.Addr // see discoveredPath.hears
}

// ask returns the demand of a row in this campaign.
func (c *Campaign) ask(row record.Row, t record.Topology, m record.Method) (demand, error) {
	d, err := ask(row, t, m, c.Run.Design.Catalogue)
	d.load.Verify = d.load.Verify || c.Run.Design.Measure.VerifyAll
	return d, err
}

// ask computes the demand of a row. Settings are in the order of the catalogue. A setting without a place
// applies to every device under test, unless the factor's declaration specifies other nodes.
func ask(row record.Row, t record.Topology, m record.Method, c *factor.Catalogue) (demand, error) {
	f := row.Factors
	if err := c.Check(f); err != nil {
		return demand{}, fmt.Errorf("row %s: %w", row.ID, err)
	}

	d := demand{
		ip:      cmp.Or(factor.IP.Number(f), 4),
		nat:     factor.NAT.Of(f),
		engine:  factor.Engine.Of(f),
		wantMTU: factor.PathMTU(t, f),
	}
	d.tunnel = lab.TunnelSpec{
		Kind:  factor.Tunnel.Of(f),
		MTU:   factor.MTU.Number(f),
		Outer: factor.OuterIP.Number(f),
		Count: factor.Tunnels.Number(f),
	}
	d.load = record.Load{
		Protocol:     factor.Protocol.Of(f),
		IP:           d.ip,
		Direction:    factor.Direction.Of(f),
		Streams:      cmp.Or(factor.Streams.Number(f), 1),
		Tunnels:      d.tunnel.Count,
		Congestion:   factor.Congestion.Of(f),
		MSS:          factor.MSS.Number(f),
		Buffer:       factor.SocketBuffer.Number(f),
		DSCP:         factor.DSCP.Number(f),
		PacketSize:   factor.PacketSize.Number(f),
		UDPMode:      factor.UDPMode.Of(f),
		FlowSize:     factor.FlowSize.Of(f),
		RequestSize:  factor.RequestSize.Number(f),
		ResponseSize: factor.ResponseSize.Number(f),
		Spacing:      factor.Arrivals.Of(f),
		RateBps:      factor.Rate.Bitrate(f) + factor.Pacing.Bitrate(f),
		Opener:       "near",
		Port:         loadPort,
		Warmup:       m.Warmup,
		Duration:     m.Duration,
		Interval:     100 * time.Millisecond,
		Verify:       row.Kind == record.RowVerify,
	}
	sizes := f.PacketSizes()
	if len(sizes) > 1 {
		d.load.Sizes = sizes
	}

	if factor.UDPGSO.Is(f, factor.Off) {
		d.load.GSO = record.GSOOff
	}

	if factor.NAT.Is(f, factor.NATForward) {
		d.load.Opener = "far"
	}

	if row.Kind != record.RowVerify { // a verification is too short for flows at a rate
		d.load.ConnectionRate = factor.ConnectionRate.PacketRate(f)
	}

	if row.Kind == record.RowVerify {
		d.load.Warmup, d.load.Duration = 0, min(m.Duration, plan.VerifyLength)
		d.load.Streams = max(d.load.Streams, d.load.Tunnels) // verify each tunnel
	}

	if d.engine == "iperf3" { // iperf3 accepts only whole seconds
		d.load.Warmup, d.load.Duration = wholeSeconds(d.load.Warmup), wholeSeconds(d.load.Duration)
	}

	if err := d.faults(f, t); err != nil {
		return demand{}, err
	}

	var err error
	d.settings, d.cpus, err = place(f, t, c)
	return d, err
}

// faults applies the levels of the factor fault that concern the load or the tunnel. All other faults are
// settings.
func (d *demand) faults(f record.Factors, t record.Topology) error {
	for at, level := range factor.Name("fault").Each(f) {
		held, err := knob.FaultLimits(level)
		if err != nil {
			return err
		}

		if held != (record.EndLimits{}) && at != t.Far {
			d.load.Near = held
		}

		if held != (record.EndLimits{}) && at != t.Near {
			d.load.Far = held
		}

		p := knob.PathFaults(level)
		if p.TunnelMTU > 0 && d.tunnel.MTU > 0 {
			d.tunnel.MTU = p.TunnelMTU
			d.wantMTU = factor.PathMTU(t, factor.MTU.With(f, strconv.Itoa(p.TunnelMTU)))
		}

		d.tunnel.Queue = cmp.Or(p.TunnelQueue, d.tunnel.Queue)
		if d.bypass = d.bypass || p.Bypass; d.bypass {
			d.wantMTU = factor.PathMTU(t, factor.MTU.With(f, ""))
		}

		if p.Hole > 0 {
			d.wantMTU = min(d.wantMTU, p.Hole)
		}
	}
	return nil
}

// wholeSeconds rounds d up to whole seconds, so that the engine and the conductor have equal windows.
func wholeSeconds(d time.Duration) time.Duration { return (d + time.Second - 1).Truncate(time.Second) }

// SettingsOf returns the settings that a cell requires of a lab.
func SettingsOf(cell record.Factors, t record.Topology, c *factor.Catalogue) ([]record.Setting, error) {
	settings, _, err := place(cell, t, c)
	return settings, err
}

// place returns the settings for those factors that a knob applies, in the order of the catalogue. It also
// returns the cores for the engine, by node.
func place(f record.Factors, t record.Topology, c *factor.Catalogue) ([]record.Setting, map[string][]int,
	error) {
	var out []record.Setting
	cpus := map[string][]int{}
	for _, name := range f.Names() {
		d := c.Of(name)
		if d.Parse == nil {
			return nil, nil, fmt.Errorf("place %s: there is no such factor", name)
		}

		plain, at := factor.Split(name)
		s := record.Setting{Knob: cmp.Or(d.Knob, plain), Value: f[name]}
		if d.Value != nil {
			s.Value = d.Value(f[name])
		}

		node, port, _ := strings.Cut(at, ".")
		target := d.Target
		if target == factor.Routers && d.Kind != factor.Setting || s.Value == "" {
			continue
		}

		var nodes []string
		switch {
		case d.PinsEnds && t.Ends(at):
			list, err := cpuList(f[name])
			if err != nil {
				return nil, nil, fmt.Errorf("place %s: %v", name, err)
			}

			cpus[at] = list
		case target == factor.Carrier, at == factor.Host && d.OnCarrier:
			nodes = []string{factor.Host}
		case at != "" && at != factor.Host:
			nodes = []string{node}
			s.Port = port
		case target == factor.EveryNode:
			for _, n := range t.Nodes {
				nodes = append(nodes, n.Name)
			}
		case target == factor.BothEnds:
			nodes = []string{t.Near, t.Far}
		case target == factor.FirstOfWAN && len(t.Routers) > 0:
			nodes, s.Port = t.Routers[:1], taggedWAN(f, t)
		case target == factor.WANLink:
			for _, l := range t.Links {
				if len(t.Routers) > 0 && l.Ends[0].Node == t.Routers[0] {
					ends := []string{l.Ends[1].Node, l.Ends[0].Node}
					onLink := s
					onLink.Port = l.Ends[0].Port
					for _, onLink.Node = range ends {
						out = append(out, onLink)
					}

					// On all other nodes, the knob drops learnt path MTUs.
					for _, n := range t.Nodes {
						if !slices.Contains(ends, n.Name) {
							nodes = append(nodes, n.Name)
						}
					}
				}
			}
		case target == factor.Routers: // even if the plan names the machine that runs the routers
			nodes = t.Routers
		}

		for _, s.Node = range nodes {
			out = append(out, s)
		}
	}

	slices.SortStableFunc(out, func(a, b record.Setting) int {
		return c.Position(a.Knob) - c.Position(b.Knob)
	})
	return out, cpus, nil
}

// taggedWAN returns the device of the first router's WAN port if the cell configures a VLAN tag or a PPPoE
// session on it, otherwise "". The NAT setting contains this device, so that NAT moves to the new device
// when the device changes.
func taggedWAN(f record.Factors, t record.Topology) string {
	for _, wan := range t.FarPorts(t.Routers[0]) {
		if factor.WAN.Is(f, factor.PPPoE) {
			return knob.SessionDevice(wan.Port, 1)
		}

		for _, at := range []string{wan.Node + "." + wan.Port, wan.Node, ""} {
			if level, ok := factor.VLAN.At(f, at); ok {
				dev := knob.VLANDevice(wan.Port, knob.State(level))
				if dev != wan.Port {
					return dev
				}
				return ""
			}
		}
	}
	return ""
}

// maxCore is the highest core number that a Linux kernel can be built for (CONFIG_NR_CPUS is at most
// 8192).
const maxCore = 8191

// cpuList parses a level of the factor cpus: "off" or "0-1,3".
func cpuList(text string) ([]int, error) {
	if text == "off" {
		return nil, nil
	}

	list, ok := kernel.CPUList(text, maxCore)
	if !ok {
		return nil, fmt.Errorf("read cores %q: want a list such as 0-1,3", text)
	}

	return list, nil
}
