package stream

import (
	"context"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Serve is the node half of the native engine.
func (Native) Serve(ctx context.Context, s host.Session) error {
	return traffic.Serve(ctx, s, traffic.CheckFlows, connect)
}

func connect(ctx context.Context, q traffic.Request, listening func(port int) error) (traffic.Running,
	error) {
	keys := traffic.FlowsOf(q.Load)
	traffic.MakeRoom(min(len(keys), traffic.OwnThreads) + 4)
	l := &traffic.Half{Request: q, Keys: keys, Flows: make([]traffic.Flow, len(keys)),
		Details: map[string]string{}}
	connect := connectTCP
	if q.Load.Protocol == "udp" {
		connect = connectUDP
	}
	if err := connect(ctx, l, listening); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}
