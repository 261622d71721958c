package traffic

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

const (
	maxTCPFlows     = 2048
	maxUDPFlows     = 20480                  // each flow uses a separate port at the opener
	MaxDSCP         = 63                     // RFC 2474: six bits
	DefaultInterval = 100 * time.Millisecond // interval of the series
)

// Congestions returns the congestion controls of a load, in the order in which they are assigned to
// streams.
func Congestions(load record.Load) []string {
	if load.Congestion == "" {
		return nil
	}
	return strings.Split(load.Congestion, "+")
}

// CongestionOf returns the congestion control of a stream, or "" for the system's default.
func CongestionOf(load record.Load, k FlowKey) string {
	all := Congestions(load)
	if len(all) > 0 {
		return all[(k.Stream-1)%len(all)]
	}
	return ""
}

// CheckLoad checks the requirements of a load that are the same on every machine.
func CheckLoad(load record.Load) check.Answer {
	most := maxTCPFlows
	if load.Protocol == "udp" {
		most = maxUDPFlows
	}

	switch n := len(FlowsOf(load)); {
	case load.Protocol != "tcp" && load.Protocol != "udp":
		return check.Not("protocol %q: want tcp or udp", load.Protocol)
	case n < 1 || n > most:
		return check.Not("%d flows: want 1 to %d", n, most)
	case load.DSCP < 0 || load.DSCP > MaxDSCP:
		return check.Not("DSCP %d: want 0 to %d", load.DSCP, MaxDSCP)
	case load.IP != 4 && load.IP != 6:
		return check.Not("IP version %d: want 4 or 6", load.IP)
	case load.Protocol == "tcp":
		return check.OK()
	}

	smallest := PacketOverhead(load.IP) + DatagramHeader
	sizes := load.PacketSizes()
	switch least, largest := slices.Min(sizes), slices.Max(sizes); {
	case least < smallest:
		return check.Not("%d-byte IPv%d packets have no room for the %d-byte header that counts them: the "+
			"smallest are %d bytes", least, load.IP, DatagramHeader, smallest)
	case load.UDPMode != "" && load.UDPMode != record.UDPExact && load.UDPMode != record.UDPCount:
		return check.Not("UDP mode %q: want exact or count", load.UDPMode)
	case largest > 65535:
		return check.Not("%d-byte packets: IP allows 65535", largest)
	case len(load.Sizes) > 0 && Counts(load):
		return check.Not("packets of several sizes are told apart one by one, which count mode does not do")
	}

	return check.OK()
}

// CheckEnds implements Check for engines. checked is the answer of the checks that do not depend on a
// machine. If it is yes, CheckEnds asks the endpoints and returns the worse answer. A third party's
// endpoint is not supported.
func CheckEnds(ctx context.Context, engine string, load record.Load, checked check.Answer,
	ends ...End) check.Answer {
	if checked.State != check.Yes {
		return checked
	}

	best := check.OK()
	for i, end := range ends {
		if end.ThirdParty != "" {
			return check.Not("the %s end is a third party's %s server, which it cannot use", sides[i],
				end.ThirdParty)
		}

		a, _ := AskEnd(ctx, engine, load, sides[i], end)
		if a.State == check.No {
			return a
		}

		if best.State == check.Yes && (a.State == check.Unknown || best.Reason == "") {
			best = a
		}
	}

	return best
}

// AskEnd asks an endpoint whether it can run its side of a load. It also reports whether the endpoint has the
// engine.
func AskEnd(ctx context.Context, engine string, load record.Load, side string, end End) (a check.Answer,
	has bool) {
	err := end.Agent.Invoke(ctx, host.Verb(host.FamilyTraffic, engine),
		Request{Check: true, Side: side, Addr: end.Addr, Load: load}, &a)
	switch {
	case errors.Is(err, host.ErrUnsupported), errors.Is(err, host.ErrUnknownVerb):
		return check.Not("%s: %v", end.Node, err), false
	case err != nil:
		a = check.CouldNotTell("%s: %v", end.Node, err)
	case a.State != check.Yes:
		a.Reason = end.Node + ": " + a.Reason
	}
	return a, true
}

// UDPMode returns the UDP mode of a load. Datagrams whose content is verified are always read one by one.
func UDPMode(load record.Load) string {
	if load.UDPMode == record.UDPCount && !load.Verify {
		return record.UDPCount
	}
	return record.UDPExact
}

// Counts reports whether datagrams are counted only by length.
func Counts(load record.Load) bool { return UDPMode(load) == record.UDPCount }
