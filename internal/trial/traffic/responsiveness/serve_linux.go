package responsiveness

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Serve is the node half: both ends carry the load; the opener also asks, the listener answers.
func (Engine) Serve(ctx context.Context, s host.Session) error {
	return traffic.Serve(ctx, s, traffic.CheckFlows, connect)
}

func connect(ctx context.Context, q traffic.Request, listening func(port int) error) (traffic.Running,
	error) {
	keys := traffic.FlowsOf(q.Load)
	traffic.MakeRoom(2*len(keys) + 4) // each flow has a thread for either direction
	l := &traffic.Half{Request: q, Keys: keys, Details: map[string]string{}}
	if err := connectFlows(ctx, l, listening); err != nil {
		l.Close()
		return nil, err
	}
	l.Mode = func() string {
		return fmt.Sprintf("tcp: frames of at most %d KiB with requests between them, %v of data unsent in "+
			"the kernel", bulkSize>>10, unsentTime)
	}
	return l, nil
}

// connectFlows makes one connection per flow, whoever sends in it, and gets ready to ask or to answer.
func connectFlows(ctx context.Context, l *traffic.Half, listening func(port int) error) error {
	q := l.Request
	conns, port, err := traffic.ConnectFlows(ctx, q, l.Keys, listening)
	if err != nil {
		return err
	}
	var controls []string
	for i, c := range conns {
		fd, failed := traffic.TakeOver(c, true)
		if c.Close(); failed != nil {
			err = failed
			continue
		}
		f := &requestFlow{Socket: traffic.Socket{FD: fd}, outbox: make(chan frame, outboxRoom),
			quit: make(chan struct{}), ByteFlow: traffic.ByteFlow{Key: l.Keys[i],
				Sends: l.Keys[i].Sends(q.Side), Table: record.NewTable("bytes")}}
		f.Addr = f.Local()
		l.Flows, l.Workers = append(l.Flows, f), append(l.Workers, f)
		control, failed := traffic.SetCongestion(fd, traffic.CongestionOf(q.Load, f.Key))
		if failed == nil {
			failed = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentFirst)
		}
		if failed != nil {
			err = fmt.Errorf("prepare %s: %w", f.Name(), failed)
		}
		if !slices.Contains(controls, control) {
			controls = append(controls, control)
		}
	}
	if err != nil {
		return err
	}
	l.Details["congestion"] = strings.Join(controls, "+")
	if q.Listen {
		a, err := answerForeign(ctx, q, port, len(l.Keys))
		if err != nil {
			return err
		}
		l.Release = a.close
		return nil
	}
	r := newRequester(q, l.Flows)
	l.Begin = r.begin
	l.Finish = func(report *traffic.EndReport) error {
		r.finish()
		report.Responsiveness = &r.seen
		return nil
	}
	l.Release = r.finish
	return nil
}
