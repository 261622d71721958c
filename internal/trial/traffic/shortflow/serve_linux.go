package shortflow

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Serve is the node side of the engine. The opener starts flows, and the listener answers.
func (Flows) Serve(ctx context.Context, s host.Session) error {
	return traffic.Serve(ctx, s, checkFlows, traffic.Endpoints((&flowEnd{}).connect))
}

// Serve is the node side of the engine. The opener sends requests, and the listener answers.
func (Requests) Serve(ctx context.Context, s host.Session) error {
	return traffic.Serve(ctx, s, checkFlows, traffic.Endpoints((&flowEnd{kept: true}).connect))
}

// checkFlows checks whether this node can open the load's connections.
func checkFlows(q traffic.Request) check.Answer {
	a := traffic.CheckFlows(q)
	if a.State != check.Yes || q.Load.ConnectionRate <= 0 {
		return a
	}
	return traffic.CheckDescriptors("flows begun at a rate", maxOpenFlows+traffic.MaxPending+64)
}

// flowEnd is one end of a load of flows or requests.
type flowEnd struct {
	part    traffic.Part
	kept    bool
	streams []*streamEnd
	clients []*client
	over    atomic.Bool
	held    []int // file descriptors to close at the end: listeners and connections that stay open
}

func (e *flowEnd) close() {
	for _, fd := range e.held {
		abortFlow(fd)
	}
}

// connect prepares the endpoint. For requests, it opens all connections. For flows, it opens one
// connection on each path to check that the path works, and keeps the listeners open.
func (e *flowEnd) connect(ctx context.Context, l *traffic.Endpoint) error {
	traffic.MakeRoom(len(traffic.AllowedCPUs()) + 4)
	q := l.Request
	keys := l.Keys
	e.part, l.Mode, l.Release = l.Part, e.String, e.close
	l.Finish = func(r *traffic.EndReport) error {
		if q.Listen {
			return nil
		}

		var tallies []*flowTally
		for _, a := range e.clients {
			tallies = append(tallies, a.tally)
		}

		r.ShortFlows = joinTallies(tallies, q.Load, e.kept)
		return nil
	}
	for i, k := range keys {
		f := &streamEnd{
			pattern: traffic.NewPattern(q.Load.Tag, i),
			control: traffic.CongestionOf(q.Load, k),
			over:    &e.over,
			ByteFlow: traffic.ByteFlow{
				Key:   k,
				Sends: k.Sends(q.Side),
				Addr:  q.PathOf(k).Addr.String(),
				Table: record.NewTable("bytes"),
			},
		}
		e.streams, l.Flows = append(e.streams, f), append(l.Flows, f)
	}

	first := keys[:min(len(q.Paths()), q.Load.Streams)]
	if e.kept {
		first = keys[:q.Load.Streams]
	}

	err := e.open(ctx, first)
	if err == nil && q.Listen {
		e.startServers(l)
	} else if err == nil {
		err = e.startClients(l)
	}

	l.Details["threads"] = fmt.Sprint(len(l.Workers))
	return err
}

// String describes how this end carries flows.
func (e *flowEnd) String() string {
	switch {
	case e.kept:
		return "tcp: one request at a time on connections that stay open"
	case e.part.Load.ConnectionRate > 0:
		return fmt.Sprintf("tcp: connections begun at a rate, up to %d at once; the listener closes first",
			maxOpenFlows)
	}
	return "tcp: the next connection when one has ended; the listener closes first"
}

// open opens the connections that stay open, or the listeners.
func (e *flowEnd) open(ctx context.Context, keys []traffic.FlowKey) error {
	fds, port, err := traffic.ConnectFlows(ctx, e.part, keys)
	if err != nil {
		return err
	}

	for _, fd := range fds {
		if !e.kept {
			abortFlow(fd) // close the connection, which only tested the path
			continue
		}

		setFlag(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY)
		e.held = append(e.held, fd)
		err = errors.Join(err, unix.SetNonblock(fd, true))
	}

	if e.kept || !e.part.Listen {
		return err
	}

	q := e.part.Request
	q.Port = port
	listeners, _, err := traffic.ListenTCP(ctx, q)
	for _, l := range listeners {
		var fd int
		if err == nil {
			if fd, err = traffic.TakeOver(l.(*net.TCPListener)); err == nil {
				setFlag(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY) // accepted sockets inherit the option
				e.held = append(e.held, fd)
			}
		}

		l.Close()
	}

	return err
}

// startServers adds the listener's threads.
func (e *flowEnd) startServers(l *traffic.Endpoint) {
	serve := func(s server) {
		s.streams, s.buffers = e.streams, newFlowBuffers(e.part.Request)
		s.first, s.welcome = traffic.Preamble(e.part.Load.Tag, 0), traffic.Welcome(e.part.Load.Tag)
		l.Workers = append(l.Workers, &s)
	}
	if !e.kept {
		several := len(traffic.Congestions(e.part.Load)) > 1
		for range traffic.AllowedCPUs() {
			serve(server{listeners: e.held, several: several})
		}
		return
	}

	var all []keptConn
	for i, fd := range e.held {
		gives, takes := e.pair(i)
		all = append(all, keptConn{fd, gives, takes})
	}

	for _, share := range traffic.Deal(all, len(traffic.AllowedCPUs())) {
		serve(server{kept: share})
	}
}

// pair returns both directions of a stream that carries requests.
func (e *flowEnd) pair(i int) (gives, takes *streamEnd) {
	up := e.streams[i]
	down := e.streams[i+e.part.Load.Streams]
	if up.Sends {
		return up, down
	}

	return down, up
}

// startClients adds the opener's threads.
func (e *flowEnd) startClients(l *traffic.Endpoint) error {
	q := e.part.Request
	sizes, err := ParseFlowSizes(FlowSizeOf(q.Load))
	if err != nil {
		return err
	}

	usual, err := traffic.TryCongestion("")
	if err != nil {
		return err
	}

	var streams []*clientStream
	for i, f := range e.streams {
		s := &clientStream{preamble: traffic.Preamble(q.Load.Tag, i)}
		switch {
		case e.kept && i >= len(e.held):
			continue // this is the other direction of a stream
		case e.kept:
			s.gives, s.takes = e.pair(i)
			s.kept = &clientConn{flowConn: flowConn{fd: e.held[i]}}
		case f.Sends:
			s.gives = f
		default:
			s.takes = f
		}

		path := q.PathOf(f.Key)
		control := f.control
		if control == usual {
			control = ""
		}

		s.dial = newDialer(path.Addr, netip.AddrPortFrom(path.Peer, uint16(q.Port)), q.Load, control)
		streams = append(streams, s)
	}

	shares := traffic.Deal(streams, len(traffic.AllowedCPUs()))
	for i, share := range shares {
		a := &client{
			request: q,
			streams: share,
			sizes:   sizes,
			kept:    e.kept,
			open:    max(maxOpenFlows/len(shares), 1),
			buffers: newFlowBuffers(q),
			welcome: traffic.Welcome(q.Load.Tag),
			rng: rand.New(rand.NewPCG(uint64(traffic.TagHash(traffic.TagSchedule, q.Load.Tag)),
				uint64(i)<<32)),
		}
		if !e.kept {
			a.due = newArrivals(q.Load, i, len(shares))
		}

		e.clients, l.Workers = append(e.clients, a), append(l.Workers, a)
	}

	return nil
}
