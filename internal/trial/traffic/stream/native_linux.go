package stream

import (
	"context"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Serve is the node side of the native engine.
func (Native) Serve(ctx context.Context, s host.Session) error {
	return traffic.Serve(ctx, s, traffic.CheckFlows, traffic.Endpoints(connect))
}

func connect(ctx context.Context, l *traffic.Endpoint) error {
	traffic.MakeRoom(min(len(l.Keys), traffic.OwnThreads) + 4)
	l.Flows = make([]traffic.Flow, len(l.Keys))
	if l.Request.Load.Protocol == "udp" {
		return connectUDP(ctx, l)
	}

	return connectTCP(ctx, l)
}
