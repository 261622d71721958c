package shortflow

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Serve is the node half: the opener begins flows, the listener answers.
func (Flows) Serve(ctx context.Context, s host.Session) error { return serveFlows(ctx, s, false) }

// Serve is the node half: the opener asks, the listener answers.
func (Requests) Serve(ctx context.Context, s host.Session) error { return serveFlows(ctx, s, true) }

func serveFlows(ctx context.Context, s host.Session, kept bool) error {
	var q traffic.Request
	if err := s.Recv(&q); err != nil {
		return err
	}
	if q.Check {
		return s.Send(checkFlows(q.Load))
	}
	if err := traffic.PinProcess(q.CPUs); err != nil {
		return err
	}
	traffic.MakeRoom(len(traffic.AllowedCPUs()) + 4)
	e := &flowEnd{request: q, kept: kept}
	defer e.close()
	l, err := e.connect(ctx, func(port int) error { return s.Send(traffic.Message{Listening: port}) })
	if err != nil {
		return err
	}
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
	report.ShortFlows = e.shortFlows()
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

// checkFlows answers for this node.
func checkFlows(load record.Load) check.Answer {
	if a := traffic.CheckNative(load); a.State != check.Yes || load.ConnectionRate <= 0 {
		return a
	}
	limit := unix.Rlimit{}
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return check.CouldNotTell("read the limit of open files: %v", err)
	}
	if need := uint64(mostOpenFlows + traffic.MaxPending + 64); limit.Cur < need {
		return check.Not("flows begun at a rate need %d open files, and %d are allowed", need, limit.Cur).
			Hinted("raise the limit, see ulimit -n")
	}
	return check.OK()
}

// flowEnd is one end of a load of flows.
type flowEnd struct {
	request traffic.Request
	kept    bool
	streams []*halfStream
	clients []*client
	over    atomic.Bool
	held    []int // descriptors to close: doors, and connections that stay open
}

func (e *flowEnd) close() {
	for _, fd := range e.held {
		abortFlow(fd)
	}
	e.held = nil
}

func (e *flowEnd) shortFlows() *record.ShortFlows {
	if e.request.Listen {
		return nil
	}
	var tallies []*flowTally
	for _, a := range e.clients {
		tallies = append(tallies, a.tally)
	}
	return joinTallies(tallies, e.request.Load, e.kept)
}

// connect makes the connections of requests. For flows it makes one on each way of the path, to find out
// before the load whether they lead there, and leaves the listener's doors open.
func (e *flowEnd) connect(ctx context.Context, listening func(port int) error) (*traffic.Half, error) {
	ctx, cancel := context.WithTimeout(ctx, traffic.Patience)
	defer cancel()
	q := e.request
	keys := traffic.FlowsOf(q.Load)
	l := &traffic.Half{Request: q, Keys: keys, Details: map[string]string{}}
	for i, k := range keys {
		lane := &halfStream{key: k, sends: k.Sends(q.Side), addr: q.PathOf(k).Addr.String(),
			pattern: traffic.NewPattern(q.Load.Tag, i),
			control: traffic.CongestionOf(q.Load, k), over: &e.over, table: record.NewTable("bytes")}
		e.streams, l.Flows = append(e.streams, lane), append(l.Flows, lane)
	}
	first := keys[:min(len(q.Paths()), q.Load.Streams)]
	if e.kept {
		first = keys[:q.Load.Streams]
	}
	var fds []int
	var err error
	if q.Listen {
		fds, err = e.listen(ctx, first, listening)
	} else {
		fds, err = e.dial(ctx, first)
	}
	if err != nil {
		return nil, err
	}
	if q.Listen {
		e.startServers(l, fds)
	} else if err := e.startClients(l, fds); err != nil {
		return nil, err
	}
	l.Mode = e.String
	l.Details["threads"] = fmt.Sprint(len(l.Workers))
	return l, nil
}

// String says how flows are carried.
func (e *flowEnd) String() string {
	switch {
	case e.kept:
		return "tcp: one request at a time on connections that stay open"
	case e.request.Load.ConnectionRate > 0:
		return fmt.Sprintf("tcp: connections begun at a rate, up to %d at once; the listener closes first",
			mostOpenFlows)
	}
	return "tcp: the next connection when one has ended; the listener closes first"
}

// listen returns the connections that stay open, or else the doors.
func (e *flowEnd) listen(ctx context.Context, keys []traffic.FlowKey, listening func(port int) error) ([]int,
	error) {
	port := 0
	conns, err := traffic.AcceptFlows(ctx, e.request, len(keys), func(p int) error {
		port = p
		return listening(p)
	})
	if err != nil || e.kept {
		return e.takeOver(conns, err)
	}
	if _, err := e.takeOver(conns, nil); err != nil {
		return nil, err
	}
	e.close() // they were only to find out
	q := e.request
	q.Port = port
	doors, _, err := traffic.ListenTCP(ctx, q)
	defer traffic.CloseListeners(doors)
	if err != nil {
		return nil, err
	}
	for _, ln := range doors {
		fd, err := duplicate(ln.(*net.TCPListener))
		if err != nil {
			return nil, err
		}
		setFlag(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY)
		e.held = append(e.held, fd)
	}
	return e.held, nil
}

// dial returns the connections that stay open.
func (e *flowEnd) dial(ctx context.Context, keys []traffic.FlowKey) ([]int, error) {
	conns, err := traffic.DialFlows(ctx, e.request, keys)
	fds, err := e.takeOver(conns, err)
	if err != nil || e.kept {
		return fds, err
	}
	e.close()
	return nil, nil
}

// takeOver takes descriptors out of Go's poller, to be closed with the end.
func (e *flowEnd) takeOver(conns []*net.TCPConn, err error) ([]int, error) {
	for _, c := range conns {
		if c == nil {
			continue
		}
		if err == nil {
			var fd int
			if fd, err = duplicate(c); err == nil {
				setFlag(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY)
				e.held = append(e.held, fd)
			}
		}
		c.Close()
	}
	return e.held, err
}

// duplicate is another descriptor of a socket, which does not block.
func duplicate(c syscall.Conn) (int, error) {
	raw, err := c.SyscallConn()
	fd := -1
	if err == nil {
		outer := raw.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
		err = errors.Join(outer, err)
	}
	if err != nil {
		return -1, fmt.Errorf("take over a socket: %w", err)
	}
	return fd, nil
}

// startServers makes the listener's threads.
func (e *flowEnd) startServers(l *traffic.Half, fds []int) {
	several := len(traffic.Congestions(e.request.Load)) > 1
	if !e.kept {
		for range traffic.AllowedCPUs() {
			l.Workers = append(l.Workers, &server{request: e.request, streams: e.streams, listeners: fds,
				several: several,
				buffers: newFlowBuffers(e.request), hello: newFlowHello(e.request.Load.Tag)})
		}
		return
	}
	var all []keptConn
	for i, fd := range fds {
		gives, takes := e.pair(i)
		all = append(all, keptConn{fd, gives, takes})
	}
	for _, hand := range traffic.Deal(all, len(traffic.AllowedCPUs())) {
		l.Workers = append(l.Workers, &server{request: e.request, streams: e.streams, kept: hand,
			buffers: newFlowBuffers(e.request), hello: newFlowHello(e.request.Load.Tag)})
	}
}

// pair are the lanes of a stream that carries requests, as this end sees them.
func (e *flowEnd) pair(i int) (gives, takes *halfStream) {
	up, down := e.streams[i], e.streams[i+e.request.Load.Streams]
	if up.sends {
		return up, down
	}
	return down, up
}

// startClients makes the opener's threads.
func (e *flowEnd) startClients(l *traffic.Half, fds []int) error {
	q := e.request
	sizes, err := ParseFlowSizes(FlowSizeOf(q.Load))
	if err != nil {
		return err
	}
	usual, err := usualCongestion()
	if err != nil {
		return err
	}
	var streams []*clientStream
	for i, lane := range e.streams {
		s := &clientStream{index: i}
		switch {
		case e.kept && i >= len(fds):
			continue // the other direction of a stream
		case e.kept:
			s.gives, s.takes = e.pair(i)
			s.kept = &clientConn{flowConn: flowConn{fd: fds[i]}}
		case lane.sends:
			s.gives = lane
		default:
			s.takes = lane
		}
		way, control := q.PathOf(lane.key), lane.control
		if control == usual {
			control = ""
		}
		s.dial = newDialer(way.Addr, netip.AddrPortFrom(way.Peer, uint16(q.Port)), q.Load, control)
		streams = append(streams, s)
	}
	hands := traffic.Deal(streams, len(traffic.AllowedCPUs()))
	for i, hand := range hands {
		a := &client{request: q, streams: hand, sizes: sizes, kept: e.kept,
			open:    max(mostOpenFlows/len(hands), 1),
			buffers: newFlowBuffers(q), hello: newFlowHello(q.Load.Tag),
			rng: rand.New(rand.NewPCG(uint64(traffic.TagHash(q.Load.Tag)), uint64(i)<<32))}
		if !e.kept {
			a.due = newArrivals(q.Load, i, len(hands))
		}
		e.clients, l.Workers = append(e.clients, a), append(l.Workers, a)
	}
	return nil
}

// usualCongestion is the control that sockets have unless told otherwise.
func usualCongestion() (string, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("open a TCP socket: %w", err)
	}
	defer unix.Close(fd)
	return unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
}
