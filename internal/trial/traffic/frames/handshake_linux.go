package frames

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// handshake is what both ends of a load do before frames flow: by ordinary sockets, which keep the flows'
// ports for as long as the load lasts, each flow is shown to the listener as it arrives there, behind any
// translation of addresses, and every device on the way learns its neighbours.
type handshake struct {
	local  []netip.AddrPort // of each flow, as this end sees it
	remote []netip.AddrPort

	sockets []int
	stop    atomic.Bool
	event   traffic.EventFD // of the listener; else NoEventFD
	done    sync.WaitGroup
}

// A hello and its answer: a hash of the tag, the flow, and which it is.
const (
	helloSize = 9
	hello     = 1
	welcomed  = 2
)

func helloOf(tag string, flow int, kind byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, traffic.TagHash("greeting "+tag))
	b = binary.BigEndian.AppendUint32(b, uint32(flow))
	return append(b, kind)
}

// readHello returns the flow, or false for a stranger's.
func readHello(b []byte, tag string, flows int, kind byte) (int, bool) {
	if len(b) != helloSize || b[8] != kind || binary.BigEndian.Uint32(b) != traffic.TagHash("greeting "+tag) {
		return 0, false
	}
	i := binary.BigEndian.Uint32(b[4:])
	return int(i), i < uint32(flows)
}

func handshakeFlows(ctx context.Context, q traffic.Request, keys []traffic.FlowKey,
	listening func(port int) error) (*handshake,
	error) {
	ctx, cancel := context.WithTimeout(ctx, traffic.Patience)
	defer cancel()
	g := &handshake{local: make([]netip.AddrPort, len(keys)), remote: make([]netip.AddrPort, len(keys)),
		event: traffic.NoEventFD}
	var err error
	if q.Listen {
		err = g.listen(ctx, q, listening)
	} else {
		err = g.sayHello(ctx, q)
	}
	if err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

func (g *handshake) bind(at netip.AddrPort) (int, netip.AddrPort, error) {
	fd, err := traffic.BindUDP(at)
	if err != nil {
		return -1, at, err
	}
	g.sockets = append(g.sockets, fd)
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return -1, at, fmt.Errorf("read the port of %v: %w", at, err)
	}
	return fd, traffic.AddrPort(sa), nil
}

// sayHello opens a socket per flow and greets on all until each is welcomed.
func (g *handshake) sayHello(ctx context.Context, q traffic.Request) error {
	to := netip.AddrPortFrom(q.Peer, uint16(q.Port))
	_, sa := traffic.Sockaddr(to)
	for i := range g.local {
		fd, at, err := g.bind(netip.AddrPortFrom(q.Addr, 0))
		if err != nil {
			return err
		}
		if err := unix.Connect(fd, sa); err != nil {
			return fmt.Errorf("connect udp to %v: %w", to, err)
		}
		g.local[i], g.remote[i] = at, to
	}
	known, missing, refused := make([]bool, len(g.local)), len(g.local), 0
	for ctx.Err() == nil && refused < traffic.MaxRefusals {
		for i, fd := range g.sockets {
			if known[i] {
				continue
			}
			_, err := unix.Write(fd, helloOf(q.Load.Tag, i, hello))
			switch err {
			case nil, unix.EINTR, unix.EAGAIN, unix.ENOBUFS:
			case unix.ECONNREFUSED:
				refused++
			default:
				return fmt.Errorf("greet %v: %w", to, err)
			}
		}
		traffic.Readable(g.sockets[0], traffic.HelloInterval)
		for i, fd := range g.sockets {
			if !known[i] && g.welcome(fd, i, q.Load.Tag) {
				known[i], missing = true, missing-1
			}
		}
		if missing == 0 {
			return nil
		}
	}
	if refused > 0 {
		return fmt.Errorf("greet %v: %w", to, unix.ECONNREFUSED)
	}
	return fmt.Errorf("greet %v: %d of %d flows were not answered within %v", to, missing, len(known),
		traffic.Patience)
}

// welcome reads what a flow's socket has until it is its welcome.
func (g *handshake) welcome(fd, flow int, tag string) bool {
	b := make([]byte, 64)
	for {
		n, _, err := unix.Recvfrom(fd, b, unix.MSG_DONTWAIT)
		if err != nil {
			return false
		}
		if i, ok := readHello(b[:n], tag, len(g.local), welcomed); ok && i == flow {
			return true
		}
	}
}

// listen learns where each flow comes from. It goes on answering until quiet, because a welcome may be
// lost.
func (g *handshake) listen(ctx context.Context, q traffic.Request, listening func(port int) error) error {
	fd, at, err := g.bind(netip.AddrPortFrom(q.Addr, uint16(q.Port)))
	if err != nil {
		return err
	}
	if err := listening(int(at.Port())); err != nil {
		return err
	}
	if g.event, err = traffic.NewEventFD(); err != nil {
		return err
	}
	full := make(chan struct{})
	g.done.Go(func() { g.answer(fd, at, q.Load.Tag, full) })
	select {
	case <-full:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for %d flows on udp %v: %w", len(g.local), at, ctx.Err())
	}
}

func (g *handshake) answer(fd int, at netip.AddrPort, tag string, full chan struct{}) {
	missing := len(g.local)
	b := make([]byte, 64)
	for !g.stop.Load() {
		if !g.event.Readable(fd, traffic.HelloInterval) {
			continue
		}
		n, from, err := unix.Recvfrom(fd, b, unix.MSG_DONTWAIT)
		if err != nil {
			continue
		}
		i, ok := readHello(b[:n], tag, len(g.local), hello)
		if !ok {
			continue // a stray
		}
		if missing > 0 && !g.local[i].IsValid() {
			g.local[i], g.remote[i] = at, traffic.AddrPort(from)
			missing--
			if missing == 0 {
				close(full)
			}
		}
		if traffic.AddrPort(from) == g.remote[i] {
			unix.Sendto(fd, helloOf(tag, i, welcomed), unix.MSG_DONTWAIT, from)
		}
	}
}

// socket is the one by which a flow greeted: the listener has one for all.
func (g *handshake) socket(flow int) int {
	if len(g.sockets) == 1 {
		return g.sockets[0]
	}
	return g.sockets[flow]
}

// quiet ends the answering.
func (g *handshake) quiet() {
	g.stop.Store(true)
	g.event.Signal()
	g.done.Wait()
}

func (g *handshake) close() {
	g.quiet()
	g.event.Close()
	g.event = traffic.NoEventFD
	for _, fd := range g.sockets {
		unix.Close(fd)
	}
	g.sockets = nil
}
