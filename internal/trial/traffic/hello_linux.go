package traffic

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// hellosAtOnce is how many flows say hello together; each takes two round trips.
const hellosAtOnce = 128

// SayHello opens a socket for each flow on its path and, once admit has connected it, says hello on all until
// each is welcomed, within Patience.
func SayHello(ctx context.Context, q Request, keys []FlowKey,
	admit func(flow, fd int, at, to netip.AddrPort) error) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	fds := make([]int, len(keys))
	for i, k := range keys {
		path := q.PathOf(k)
		fd, at, err := BindUDP(netip.AddrPortFrom(path.Addr, 0))
		if err == nil {
			fds[i], err = fd, admit(i, fd, at, netip.AddrPortFrom(path.Peer, uint16(q.Port)))
		}
		if err != nil {
			return err
		}
	}
	for first := 0; first < len(fds); first += hellosAtOnce {
		some := fds[first:min(first+hellosAtOnce, len(fds))]
		if err := sayHello(ctx, some, helloHash(q.Load), first); err != nil {
			return fmt.Errorf("say hello to %v: %w", netip.AddrPortFrom(q.Peer, uint16(q.Port)), err)
		}
	}
	return nil
}

func sayHello(ctx context.Context, fds []int, tag uint32, first int) error {
	waiting := make([]unix.PollFd, len(fds)) // poll(2) leaves out what is below 0
	for i, fd := range fds {
		waiting[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	}
	b, missing, refusals, refused := make([]byte, 64), len(fds), 0, false
	cookies := make([]uint64, len(fds))
	hello := func(i int) error {
		Datagram{Tag: tag, Flow: uint16(first + i), Phase: PhaseHello}.WithCookie(cookies[i]).Put(b)
		switch _, err := unix.Write(fds[i], b[:DatagramHeader]); err {
		case nil, unix.EINTR, unix.EAGAIN, unix.ENOBUFS:
		case unix.ECONNREFUSED:
			refused = true
		default:
			return err
		}
		return nil
	}
	for ctx.Err() == nil && refusals < maxRefusals {
		refused = false
		for i := range waiting {
			if waiting[i].Fd < 0 {
				continue
			}
			if err := hello(i); err != nil {
				return err
			}
		}
		for until := Monotonic() + int64(HelloInterval); Monotonic() < until; {
			unix.Poll(waiting, int(HelloInterval.Milliseconds()))
			for i := range waiting {
				if waiting[i].Fd < 0 || waiting[i].Revents == 0 {
					continue
				}
				n, _, err := unix.Recvfrom(fds[i], b, unix.MSG_DONTWAIT)
				refused = refused || err == unix.ECONNREFUSED
				d, ok := ReadDatagram(b[:max(n, 0)])
				switch {
				case !ok || d.Tag != tag || int(d.Flow) != first+i:
				case d.Phase == PhaseWelcome:
					waiting[i].Fd = -1
					missing--
				case d.Phase == PhaseChallenge && d.Cookie() != cookies[i]:
					cookies[i] = d.Cookie()
					if err := hello(i); err != nil {
						return err
					}
				}
			}
			if missing == 0 {
				return nil
			}
		}
		if refused {
			refusals++
		}
	}
	if refusals > 0 {
		return unix.ECONNREFUSED
	}
	return fmt.Errorf("%d of %d flows had no answer within %v", missing, len(fds), Patience)
}

// UDPListener is where the flows of one path say hello; many flows share it for their data.
type UDPListener struct {
	Socket
	At netip.AddrPort
}

// HelloServer answers the hellos of a load's flows.
type HelloServer struct {
	Listeners []*UDPListener // one on each path, everywhere on the same port

	admit   func(flow int, from netip.AddrPort, at *UDPListener) (fd int, err error)
	hellos  *Hellos
	flows   []admitted
	missing int
	full    chan error // nil once no flow is missing
	end     int        // an eventfd that ends the answering
	done    chan struct{}
}

// admitted is a flow that has said hello. It is answered by its own socket, or else by the listener's.
type admitted struct {
	known bool
	from  netip.AddrPort
	fd    int
}

// AnswerHellos listens until each flow of a load has said hello, within Patience. admit takes a flow in and
// returns its own socket, or -1. Hellos that come again are answered until Stop, because a welcome may be
// lost.
func AnswerHellos(ctx context.Context, q Request, flows int, listening func(port int) error,
	admit func(flow int, from netip.AddrPort, at *UDPListener) (fd int, err error)) (*HelloServer, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	h := &HelloServer{admit: admit, hellos: NewHellos(q, flows), flows: make([]admitted, flows),
		missing: flows, full: make(chan error, 1), end: -1, done: make(chan struct{})}
	err := h.listen(q)
	if err == nil {
		err = listening(int(h.Listeners[0].At.Port()))
	}
	if err == nil {
		if h.end, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
			err = fmt.Errorf("open an eventfd: %w", err)
		}
	}
	if err == nil {
		go func() {
			defer close(h.done)
			h.serve()
		}()
		select {
		case err = <-h.full:
		case <-ctx.Done():
			err = fmt.Errorf("wait for %d flows on udp %v: %w", flows, h.Listeners[0].At, ctx.Err())
		}
	}
	if err != nil {
		h.Close()
	}
	return h, err
}

func (h *HelloServer) listen(q Request) error {
	port := uint16(q.Port)
	for _, path := range q.Paths() {
		fd, at, err := BindUDP(netip.AddrPortFrom(path.Addr, port))
		if err != nil {
			return err
		}
		l := &UDPListener{Socket: Socket{FD: fd}, At: at}
		h.Listeners, port = append(h.Listeners, l), at.Port()
		if err := DontFragment(fd, q.Load.IP); err != nil {
			return fmt.Errorf("forbid fragments on udp %v: %w", at, err)
		}
		if err := MarkDSCP(fd, q.Load); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends the answering; the listeners stay open.
func (h *HelloServer) Stop() {
	if h.end >= 0 {
		unix.Write(h.end, binary.NativeEndian.AppendUint64(nil, 1))
		<-h.done
		unix.Close(h.end)
		h.end = -1
	}
}

// Close closes the listeners too.
func (h *HelloServer) Close() {
	h.Stop()
	for _, l := range h.Listeners {
		l.Close()
	}
}

// answersAtOnce is how many datagrams of one socket are answered before the others' turn.
const answersAtOnce = 64

func (h *HelloServer) serve() {
	b := make([]byte, 64)
	for {
		fds := []unix.PollFd{{Fd: int32(h.end), Events: unix.POLLIN}}
		for _, l := range h.Listeners {
			fds = append(fds, unix.PollFd{Fd: int32(l.FD), Events: unix.POLLIN})
		}
		for _, f := range h.flows {
			if f.known && f.fd >= 0 {
				fds = append(fds, unix.PollFd{Fd: int32(f.fd), Events: unix.POLLIN})
			}
		}
		if _, err := unix.Poll(fds, -1); err != nil {
			continue
		}
		if fds[0].Revents != 0 {
			return
		}
		for i, p := range fds[1:] {
			var l *UDPListener
			if i < len(h.Listeners) {
				l = h.Listeners[i]
			}
			for n := 0; p.Revents != 0 && n < answersAtOnce; n++ {
				more, err := h.answer(int(p.Fd), l, b)
				if err != nil {
					h.full <- err
					return
				}
				if !more {
					break
				}
			}
		}
	}
}

// answer welcomes what one socket has: a new flow at a listener, or a flow that did not hear its welcome.
func (h *HelloServer) answer(fd int, at *UDPListener, b []byte) (more bool, err error) {
	n, sa, err := unix.Recvfrom(fd, b, unix.MSG_DONTWAIT)
	if err != nil {
		return false, nil // spurious wake-up, or the echo of an ICMP error
	}
	from := addrPort(sa)
	flow, answer := h.hellos.Judge(b[:n], from)
	if flow < 0 {
		if answer != nil {
			unix.Sendto(fd, answer, unix.MSG_DONTWAIT, sa)
		}
		return true, nil
	}
	f := &h.flows[flow]
	if !f.known {
		if at == nil {
			return true, nil
		}
		if f.fd, err = h.admit(flow, from, at); err != nil {
			return false, err
		}
		f.known, f.from = true, from
		if h.missing--; h.missing == 0 {
			defer func() { h.full <- nil }()
		}
	}
	switch {
	case f.fd >= 0:
		unix.Write(f.fd, answer)
	case at != nil && f.from == from:
		unix.Sendto(fd, answer, unix.MSG_DONTWAIT, sa)
	}
	return true, nil
}
