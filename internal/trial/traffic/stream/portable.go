package stream

import (
	"context"
	"fmt"
	"runtime"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// ServePortable is a node side of the native engine that uses only package net and socket options that the
// BSDs have. It is compatible with the node side for Linux. Its results lack the kernel's data about
// streams, the number of packets that a socket dropped because its buffer was full, and the kernel's time
// stamps.
func ServePortable(ctx context.Context, s host.Session) error {
	return traffic.Serve(ctx, s, checkPortable, traffic.Endpoints(connectPortable))
}

// maxPortable is the maximum number of flows, because each flow has a goroutine.
const maxPortable = 64

// checkPortable checks whether this node can carry the flows of a load.
func checkPortable(q traffic.Request) check.Answer {
	l := q.Load
	held := q.Load.Limits(q.Side)
	system := unit.System(runtime.GOOS)
	for _, lacking := range []struct {
		asked bool
		what  string
	}{
		{len(traffic.FlowsOf(l)) > maxPortable, fmt.Sprintf("at most %d flows", maxPortable)},
		{len(q.CPUs) > 0, "no choice of cores"},
		{l.MSS > 0, "no choice of segment sizes"},
		{l.Buffer > 0, "no choice of socket buffers"},
		{l.DSCP > 0, "no marks of DSCP"},
		{l.Protocol == "udp" && traffic.Counts(l), "no count mode of UDP"},
		{held != record.EndLimits{}, "no limits of an application"},
	} {
		if lacking.asked {
			return check.Not("its system is %s: the portable engine has %s", system, lacking.what)
		}
	}

	for _, name := range traffic.Congestions(l) {
		if _, err := traffic.TryCongestion(name); err != nil {
			return check.Not("its system is %s: congestion control %s: %v", system, name, err)
		}
	}

	return check.OK()
}

func connectPortable(ctx context.Context, l *traffic.Endpoint) error {
	a := checkPortable(l.Request)
	if a.State != check.Yes {
		return fmt.Errorf("%w: %s", host.ErrUnsupported, a.Reason)
	}

	// Tests use this code on Linux, where threads that only sleep must not keep goroutines from running.
	traffic.MakeRoom(len(l.Keys) + 4)
	l.Flows = make([]traffic.Flow, len(l.Keys))
	if l.Request.Load.Protocol == "udp" {
		return connectPortableUDP(ctx, l)
	}

	return connectPortableTCP(ctx, l)
}
