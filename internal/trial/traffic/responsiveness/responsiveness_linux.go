// Package responsiveness measures the duration of requests while TCP loads the path.
package responsiveness

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Engine loads a path with TCP and measures the duration of requests, on separate connections and on the
// connections that carry the load, as in draft-ietf-ippm-responsiveness. It differs from the draft as
// follows: there is no TLS or HTTP, a request is a few bytes of the engine's own protocol, and the number of
// load-carrying connections is fixed instead of increased until the path is full. The node side requires
// Linux.
type Engine struct{ traffic.Plain[Engine] }

// Name returns "responsiveness".
func (Engine) Name() string { return "responsiveness" }

// requestInterval is the time between foreign requests, and between loaded requests. It results in 80
// requests per second; the draft allows 100. These requests use less than 5 % of a link of 4 Mbit/s.
const requestInterval = 25 * time.Millisecond

// maxRequestFlows limits the threads of one endpoint.
const maxRequestFlows = 64

// CheckLoad permits only TCP at full rate.
func (Engine) CheckLoad(load record.Load) check.Answer {
	switch {
	case load.Protocol != "tcp":
		return check.Not("protocol %q: responsiveness is measured beside TCP", load.Protocol)
	case load.Verify:
		return check.Not("its content is not verified; the engine native does that")
	case len(traffic.FlowsOf(load)) > maxRequestFlows:
		return check.Not("%d flows: want at most %d, each of which has two threads",
			len(traffic.FlowsOf(load)), maxRequestFlows)
	case load.RateBps > 0:
		return check.Not("it loads the path as far as that goes, and knows no rate")
	}
	return traffic.CheckLoad(load)
}

// Serve is the node side of the engine. Both endpoints carry the load. The opener also sends requests,
// which the listener answers.
func (Engine) Serve(ctx context.Context, s host.Session) error {
	return traffic.Serve(ctx, s, traffic.CheckFlows, traffic.Endpoints(connect))
}

// connect opens one connection per flow, regardless of the flow's direction, and prepares to send or
// answer requests.
func connect(ctx context.Context, l *traffic.Endpoint) error {
	traffic.MakeRoom(2*len(l.Keys) + 4) // because each flow has a thread per direction
	l.Mode = func() string {
		return fmt.Sprintf("tcp: frames of at most %d KiB with requests between them, %v of data unsent in "+
			"the kernel", bulkSize>>10, unsentTime)
	}
	q := l.Request
	fds, port, err := traffic.ConnectFlows(ctx, l.Part, l.Keys)
	if err != nil {
		return err
	}

	for i, fd := range fds {
		f := &requestFlow{
			Socket: traffic.Socket{FD: fd},
			outbox: make(chan frame, outboxRoom),
			quit:   make(chan struct{}),
			ByteFlow: traffic.ByteFlow{
				Key:   l.Keys[i],
				Sends: l.Keys[i].Sends(q.Side),
				Table: record.NewTable("bytes"),
			},
		}
		f.Addr = f.Local()
		l.Flows, l.Workers = append(l.Flows, f), append(l.Workers, f)
		control, failed := traffic.SetCongestion(fd, traffic.CongestionOf(q.Load, f.Key))
		if failed == nil {
			failed = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentFirst)
		}

		if failed != nil {
			err = fmt.Errorf("prepare %s: %w", f.Name(), failed)
		}

		l.UsesCongestion(control)
	}

	if err != nil {
		return err
	}

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
