package stream

import (
	"context"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Serve is the node half of the native engine.
func (Native) Serve(ctx context.Context, s host.Session) error {
	var q traffic.Request
	if err := s.Recv(&q); err != nil {
		return err
	}
	if q.Check {
		return s.Send(traffic.CheckNative(q.Load))
	}
	if err := traffic.PinProcess(q.CPUs); err != nil {
		return err
	}
	keys := traffic.FlowsOf(q.Load)
	traffic.MakeRoom(min(len(keys), traffic.OwnThreads) + 4)
	connect := connectTCP
	if q.Load.Protocol == "udp" {
		connect = connectUDP
	}
	l, err := connect(ctx, q, keys, func(port int) error { return s.Send(traffic.Message{Listening: port}) })
	if err != nil {
		return err
	}
	defer l.Close()
	if err := s.Send(traffic.Message{Ready: true}); err != nil {
		return err
	}
	var w record.Window
	if err := s.Recv(&w); err != nil {
		return err
	}
	report,
		err := l.Run(ctx, w, func(g traffic.Glimpse) error { return s.Send(traffic.Message{Glimpse: &g}) })
	if err != nil {
		return err
	}
	flows := report.Flows
	report.Flows = nil
	if err := traffic.SendResult(s, report); err != nil {
		return err
	}
	for i := range flows {
		if err := traffic.SendResult(s, &flows[i]); err != nil {
			return err
		}
	}
	return nil
}
