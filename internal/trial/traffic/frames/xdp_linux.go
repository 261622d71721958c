// Package frames offers load as Ethernet frames that XDP programs or AF_PACKET sockets build and count
// outside the network stack. The result therefore depends on the router, not on the network stacks of the
// endpoints.
package frames

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/probe/bpf"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// XDP is the load generator for small packets. The sender's kernel creates frames in the receive path of a
// driver and sends them. The receiver's driver counts the frames before they become packets of the network
// stack. The node side requires Linux and the right to load BPF programs. If a device does not accept such
// frames, the load is offered by sendmmsg, and the result contains a caveat.
type XDP struct {
	// Fallback offers the load through sockets if frames cannot be sent. If Fallback is nil, such a load
	// fails.
	Fallback traffic.Engine
}

// Name returns "xdp".
func (XDP) Name() string { return "xdp" }

// maxFramePacket is the length in bytes of the largest IP packet in a frame that BPF_PROG_TEST_RUN sends.
// With the Ethernet header and the frame check sequence, the frame has 1518 bytes.
const maxFramePacket = 1500

// Check checks both nodes, unless the load is impossible regardless of the machine.
func (x XDP) Check(ctx context.Context, near, far traffic.End, load record.Load) check.Answer {
	checked := checkFrames(load)
	if checked.State == check.Yes {
		why := x.refusal(ctx, near, far, load)
		if why != "" {
			if x.Fallback == nil || load.Frames+load.Sink != "" {
				return check.Not("%s", why)
			}
			return x.Fallback.Check(ctx, near, far, load)
		}
	}
	return traffic.CheckEnds(ctx, x.Name(), load, checked, near, far)
}

// refusal returns the reason why an endpoint does not support frames at all, or "" if it may. Agents on
// systems other than Linux do not support frames, nor does the peer in the lab "pair".
func (x XDP) refusal(ctx context.Context, near, far traffic.End, load record.Load) string {
	for _, end := range []traffic.End{near, far} {
		a, has := traffic.AskEnd(ctx, x.Name(), load, "", end)
		if !has {
			return a.Reason
		}
	}
	return ""
}

// Asked lists the modes of sending and counting frames, the best first.
func (XDP) Asked() []traffic.Asked {
	load := record.Load{Protocol: "udp", Direction: record.Up, PacketSize: 64}
	asked := []traffic.Asked{{Load: load}}
	for _, load.Frames = range sendModes {
		asked = append(asked, traffic.Asked{Way: modeNames[load.Frames], Load: load})
	}

	load.Frames = ""
	for _, load.Sink = range sinkModes {
		asked = append(asked, traffic.Asked{Way: modeNames[load.Sink], Load: load})
	}

	return asked
}

func (x XDP) verb() string { return host.Verb(host.FamilyTraffic, x.Name()) }

// checkFrames checks the requirements of a load that are the same on every machine.
func checkFrames(load record.Load) check.Answer {
	least := traffic.PacketOverhead(load.IP) + bpf.Header
	sizes := load.PacketSizes()
	switch {
	case load.Protocol != "udp":
		return check.Not("protocol %s: its frames carry udp", load.Protocol)
	case load.Streams < 1 || load.Streams > bpf.MaxFlows:
		return check.Not("%d flows in each direction: want 1 to %d", load.Streams, bpf.MaxFlows)
	case len(load.Sizes) > bpf.MaxSizes:
		return check.Not("packets of %d sizes in turn: its frames have at most %d", len(sizes), bpf.MaxSizes)
	case slices.Min(sizes) < least || slices.Max(sizes) > maxFramePacket:
		return check.Not("IPv%d packets of %d to %d bytes: its frames hold %d to %d", load.IP,
			slices.Min(sizes), slices.Max(sizes), least, maxFramePacket)
	case load.UDPMode == record.UDPCount || load.GSO != "":
		return check.Not("its frames are sent and counted one by one, always")
	case load.Verify:
		return check.Not("content is not verified: what arrives is counted in the driver and dropped")
	case load.Tunnels > 1:
		return check.Not("%d tunnels: all its frames leave by one device", load.Tunnels)
	case load.Frames != "" && !slices.Contains(sendModes, load.Frames):
		return check.Not("frames sent by %q: want %s", load.Frames, strings.Join(sendModes, ", "))
	case load.Sink != "" && !slices.Contains(sinkModes, load.Sink):
		return check.Not("frames counted by %q: want %s", load.Sink, strings.Join(sinkModes, ", "))
	}

	return traffic.CheckLoad(load)
}

// Offer runs the load and joins the counts of both endpoints.
func (x XDP) Offer(ctx context.Context, near, far traffic.End, load record.Load,
	conductor traffic.Conductor) (*record.Traffic, error) {
	a := checkFrames(load)
	if a.State != check.Yes {
		return nil, fmt.Errorf("offer %s load: %s", load.Protocol, a.Reason)
	}

	why := x.refusal(ctx, near, far, load)
	if why != "" && load.Frames+load.Sink == "" {
		return x.fallBack(ctx, near, far, load, conductor, why)
	}

	next := map[string]*traffic.Neighbor{} // devices that test-run frames enter, by sending end
	for side, pair := range map[string][2]traffic.End{"near": {near, far}, "far": {far, near}} {
		if load.Direction != record.Both && !(traffic.FlowKey{Direction: load.Direction}).Sends(side) {
			continue
		}

		var w frameModes
		q := traffic.Request{Survey: true, Addr: pair[0].Addr, Peer: pair[1].Target, Load: load}
		if err := pair[0].Agent.Invoke(ctx, x.verb(), q, &w); err != nil {
			return nil, fmt.Errorf("check how %s can send frames: %w", pair[0].Node, err)
		}

		switch c := w.sender(load); {
		case c.mode == "" && load.Frames+load.Sink != "":
			return nil, fmt.Errorf("send frames at %s: %s", pair[0].Node, c.instead)
		case c.mode == "":
			return x.fallBack(ctx, near, far, load, conductor, pair[0].Node+": "+c.instead)
		case c.mode == record.FramesLive && pair[0].Next != nil && pair[0].Next.Node != pair[1].Node:
			next[side] = pair[0].Next // because the other end prepares its own device
		}
	}

	for _, n := range next {
		letGo, err := x.prepare(ctx, n)
		if err != nil {
			return nil, fmt.Errorf("prepare %s of %s to take frames: %w", n.Device, n.Node, err)
		}
		defer letGo()
	}

	t, reports, err := traffic.Offer(ctx, x.Name(), near, far, load, conductor, check.OK())
	if err != nil {
		return nil, err
	}

	for side, n := range next {
		t.Details[side+".neighbor"] = fmt.Sprintf("%s.%s made ready to take frames: an XDP program that "+
			"lets everything pass, gone with the load", n.Node, n.Device)
	}

	for i, f := range t.Flows {
		if t.Details[map[string]string{record.Up: "far", record.Down: "near"}[f.Direction]+
			".counted_by"] == record.SinkDriver {
			t.Flows[i].Packets.Gaps = nil // because the driver does not count runs of lost packets
		}
	}

	t.Caveats = append(t.Caveats, fellBack(t.Details)...)
	for i, direction := range []string{record.Down, record.Up} { // only if both times are from the same clock
		if len(reports[i].Delays) > 0 && reports[0].Boot == reports[1].Boot && reports[0].Boot != "" {
			t.OneWay = append(t.OneWay, record.OneWay{Direction: direction, Counts: reports[i].Delays})
		}
	}

	return t, nil
}

// fallBack offers the load through Fallback, by sendmmsg.
func (x XDP) fallBack(ctx context.Context, near, far traffic.End, load record.Load, c traffic.Conductor,
	why string) (*record.Traffic, error) {
	if x.Fallback == nil {
		return nil, fmt.Errorf("send frames: %s", why)
	}

	t, err := x.Fallback.Offer(ctx, near, far, load, c)
	if err != nil {
		return nil, err
	}

	t.Engine = x.Name()
	for _, side := range []string{"near", "far"} {
		t.Details[side+".mode"] = "no frames; " + t.Details[side+".mode"]
	}

	t.Caveats = append(t.Caveats, record.Caveat{
		Kind: engineFellBack,
		Text: "the load was offered by sendmmsg and received by sockets: " + why,
	})
	return t, nil
}

// prepare changes the device that a sender's frames enter, so that it accepts the frames until letGo is
// called. letGo undoes the change and waits until this is done. A virtual link silently drops frames if its
// other end has neither a program nor GRO.
func (x XDP) prepare(ctx context.Context, n *traffic.Neighbor) (letGo func(), err error) {
	octx, cancel := context.WithTimeout(ctx, traffic.SetUp)
	defer cancel()
	s, err := n.Agent.Open(octx, x.verb(), traffic.Request{Neighbor: n.Device})
	if err != nil {
		return nil, err
	}

	if err := host.Await(octx, s, &traffic.Message{}); err != nil {
		s.Close()
		return nil, err
	}

	return func() { traffic.LetGo(s, traffic.Patience) }, nil
}

// ratePPS returns the packet rate in one direction over all flows; 0 means full rate. The load's own rate
// counts UDP payload over all streams and directions.
func ratePPS(load record.Load) float64 {
	bits := 8 * traffic.MeanPayload(load)
	if load.Direction == record.Both {
		bits *= 2
	}
	return load.RateBps / bits
}

// xdpDrain is the time to wait for further frames after the end of sending, and after the last frame
// received. It is needed because frames have no end marker. A queue on the path may take until the end of
// the timeline to empty.
const xdpDrain = 30 * time.Millisecond
