package responsiveness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Serve is the node half: both ends carry the load; the opener also asks, the listener answers.
func (Engine) Serve(ctx context.Context, s host.Session) error {
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
	traffic.MakeRoom(2*len(keys) + 4) // each flow has a thread for either direction
	l, port, err := connectRequestFlows(ctx, q, keys,
		func(port int) error { return s.Send(traffic.Message{Listening: port}) })
	if err != nil {
		return err
	}
	defer l.Close()
	if q.Listen {
		p, err := openAcceptor(ctx, q, port, len(keys))
		if err != nil {
			return err
		}
		defer p.end()
	}
	if err := s.Send(traffic.Message{Ready: true}); err != nil {
		return err
	}
	var w record.Window
	if err := s.Recv(&w); err != nil {
		return err
	}
	r := newRequester(q, l.Flows, w)
	if !q.Listen {
		r.begin(ctx)
	}
	report,
		err := l.Run(ctx, w, func(g traffic.Glimpse) error { return s.Send(traffic.Message{Glimpse: &g}) })
	r.finish()
	if err != nil {
		return err
	}
	if !q.Listen {
		report.Responsiveness = &r.seen
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

// connectRequestFlows makes one connection per flow, whoever sends in it, and says on which port the
// listener was.
func connectRequestFlows(ctx context.Context, q traffic.Request, keys []traffic.FlowKey,
	listening func(port int) error) (*traffic.Half, int, error) {
	ctx, cancel := context.WithTimeout(ctx, traffic.Patience)
	defer cancel()
	port := q.Port
	var conns []*net.TCPConn
	var err error
	if q.Listen {
		conns, err = traffic.AcceptFlows(ctx, q, len(keys), func(p int) error {
			port = p
			return listening(p)
		})
	} else {
		conns, err = traffic.DialFlows(ctx, q, keys)
	}
	defer func() {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
	}()
	if err != nil {
		return nil, 0, err
	}
	l := &traffic.Half{Request: q, Keys: keys, Flows: make([]traffic.Flow, len(keys)),
		Details: map[string]string{}}
	var controls []string
	for i, c := range conns {
		f, err := newRequestFlow(c, q, keys[i])
		if err != nil {
			l.Close()
			return nil, 0, err
		}
		l.Flows[i], l.Workers = f, append(l.Workers, f)
		if !slices.Contains(controls, f.congestion) {
			controls = append(controls, f.congestion)
		}
	}
	l.Details["congestion"] = strings.Join(controls, "+")
	l.Mode = func() string {
		return fmt.Sprintf("tcp: frames of at most %d KiB with requests between them, %v of data unsent in "+
			"the kernel", bulkSize>>10, unsentTime)
	}
	return l, port, nil
}

// newRequestFlow takes the descriptor out of Go's poller, as newTCPFlow does.
func newRequestFlow(c *net.TCPConn, q traffic.Request, k traffic.FlowKey) (*requestFlow, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("take over connection: %w", err)
	}
	fd := -1
	outer := raw.Control(func(old uintptr) {
		if fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0); err == nil {
			err = unix.SetNonblock(fd, false)
		}
	})
	if err = errors.Join(outer, err); err != nil {
		if fd >= 0 {
			unix.Close(fd)
		}
		return nil, fmt.Errorf("take over connection: %w", err)
	}
	f := &requestFlow{
		Socket: traffic.Socket{Fd: fd}, key: k, sends: k.Sends(q.Side), table: record.NewTable("bytes"),
		outbox: make(chan frame, outboxRoom), quit: make(chan struct{}),
	}
	want := traffic.CongestionOf(q.Load, k) // which a listener cannot set, before it knows the stream
	if want != "" {
		unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, want) // read back here
	}
	if f.congestion, err = unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION); err != nil ||
		want != "" && f.congestion != want {
		f.Close()
		return nil, fmt.Errorf("congestion control is %q after setting %q: %v", f.congestion, want, err)
	}
	f.addr = f.Local()
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentFirst); err != nil {
		f.Close()
		return nil, fmt.Errorf("bound what a connection holds unsent: %w", err)
	}
	return f, nil
}
