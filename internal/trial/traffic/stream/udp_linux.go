package stream

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// connectUDP makes the flows. The opener's hello shows the listener where a flow comes from, behind any
// NAT, and opens the way back. All flows share the listener's one port, so that a single port forward
// carries them. There each has a connected socket, or, where there are many, all share that of the port:
// kernels before 6.13 search through all sockets of a port for each packet.
func connectUDP(ctx context.Context, q traffic.Request, keys []traffic.FlowKey,
	listening func(port int) error) (*traffic.Half,
	error) {
	ctx, cancel := context.WithTimeout(ctx, traffic.Patience)
	defer cancel()
	l := &traffic.Half{Request: q, Keys: keys, Flows: make([]traffic.Flow, len(keys)),
		Details: map[string]string{}}
	u := &udpEnd{Half: l, shared: q.Listen && len(keys) > traffic.OwnThreads, gso: map[netip.Addr]gso{}}
	var err error
	if q.Listen {
		err = u.answerFlows(ctx, listening)
	} else {
		err = u.sayHello(ctx)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	l.Workers = u.workers()
	l.Mode = u.mode
	l.Details["rcvbuf_bytes"] = strconv.Itoa(u.rcvbuf) // of each socket
	l.Details["sndbuf_bytes"] = strconv.Itoa(u.sndbuf)
	l.Details["uncut_trains"] = strconv.FormatBool(u.gsoWhole())
	return l, nil
}

// udpEnd is one end of a UDP load.
type udpEnd struct {
	*traffic.Half
	shared         bool // the flows share the listener's doors
	gso            map[netip.Addr]gso
	rcvbuf, sndbuf int
}

// newFlow makes a flow of a socket that is bound, and connects it; or, where the flows share a door, of
// that.
func (u *udpEnd) newFlow(fd, i int, peer netip.AddrPort, through *udpListener) (*udpFlow, error) {
	q := u.Request
	if through == nil {
		if err := prepareUDP(fd, q.Load, peer); err != nil {
			unix.Close(fd)
			return nil, err
		}
	}
	f := newUDPFlow(fd, q, i, u.Keys[i], len(u.Keys))
	if through != nil {
		f.listener, f.to, f.addr = through, traffic.NewRawAddr(peer), through.at.String()
		if !through.reported {
			f.drops, through.reported = &through.Socket, true
			f.rcvbuf, f.sndbuf = traffic.UdpRoom(&through.Socket, 1)
		}
	}
	if f.rcvbuf > 0 {
		u.rcvbuf, u.sndbuf = f.rcvbuf, f.sndbuf
	}
	u.Flows[i] = f
	if !f.sends || q.Load.Trains == record.TrainsOff || len(q.Load.Sizes) > 0 {
		return f, nil
	}
	t, known := u.gso[peer.Addr()]
	if !known {
		t = gsoTo(peer.Addr(), f.payload, f.count)
		u.gso[peer.Addr()] = t
	}
	f.gso = t.begin(f.sendFD(), f.payload)
	return f, nil
}

// prepareUDP connects a socket and sets what concerns what it sends.
func prepareUDP(fd int, load record.Load, peer netip.AddrPort) error {
	_, sa := traffic.Sockaddr(peer)
	if err := unix.Connect(fd, sa); err != nil {
		return fmt.Errorf("connect udp to %v: %w", peer, err)
	}
	if err := traffic.DontFragment(fd, load.IP); err != nil {
		return fmt.Errorf("forbid fragments on udp to %v: %w", peer, err)
	}
	return traffic.MarkDSCP(fd, load)
}

// workers gives each flow a thread, or deals them: those with sockets of their own to one thread per core
// and way, those that come through a door to one.
func (u *udpEnd) workers() []traffic.Worker {
	own := len(u.Keys) <= traffic.OwnThreads
	var senders []*udpFlow
	var crews []traffic.Worker
	receivers := map[*udpListener][]*udpFlow{}
	for _, f := range u.Flows {
		f := f.(*udpFlow)
		switch {
		case own && f.sends:
			crews = append(crews, newUDPSource([]*udpFlow{f}, u.Request, len(u.Keys)))
		case own:
			crews = append(crews, newUDPSink([]*udpFlow{f}, len(u.Keys)))
		case f.sends:
			senders = append(senders, f)
		default:
			receivers[f.listener] = append(receivers[f.listener], f)
		}
	}
	cores := len(traffic.AllowedCPUs())
	for _, hand := range traffic.Deal(senders, cores) {
		crews = append(crews, newUDPSource(hand, u.Request, len(u.Keys)))
	}
	for d, flows := range receivers {
		parts := cores
		if d != nil {
			parts = 1
		}
		for _, hand := range traffic.Deal(flows, parts) {
			crews = append(crews, newUDPSink(hand, len(u.Keys)))
		}
	}
	return crews
}

// mode describes how this end sent and received.
func (u *udpEnd) mode() string {
	send, receive := "", ""
	polls := fmt.Sprintf("%v, or %v with ample room", traffic.ReceivePoll, amplePoll)
	for _, f := range u.Flows {
		f := f.(*udpFlow)
		switch {
		case !f.sends:
			receive = "receive every datagram with its time, polled each " + polls
			if f.count {
				receive = "receive trains joined by the kernel (UDP_GRO), polled each " + polls
			}
		case f.gso.most > 1 && f.gso.whole:
			send = fmt.Sprintf("send trains of up to %d, which the first device takes uncut", f.gso.most)
		case f.gso.most > 1:
			send = fmt.Sprintf("send trains of up to %d, which the kernel cuts before the first device",
				f.gso.most)
		case send == "":
			send = "send by sendmmsg"
		}
	}
	var parts []string
	for _, part := range []string{send, receive} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return fmt.Sprintf("udp, %s mode: %s", traffic.UdpMode(u.Request.Load), strings.Join(parts, "; "))
}

// gsoWhole says whether the first device was given trains whole.
func (u *udpEnd) gsoWhole() bool {
	for _, t := range u.gso {
		if t.whole {
			return true
		}
	}
	return false
}

// sayHello is the opener's half: it greets for each flow until it is answered.
func (u *udpEnd) sayHello(ctx context.Context) error {
	q := u.Request
	for i, k := range u.Keys {
		way := q.PathOf(k)
		target := netip.AddrPortFrom(way.Peer, uint16(q.Port))
		fd, err := traffic.BindUDP(netip.AddrPortFrom(way.Addr, 0))
		if err != nil {
			return err
		}
		f, err := u.newFlow(fd, i, target, nil)
		if err != nil {
			return err
		}
		if err := traffic.Handshake(ctx, f.Fd, f.tag, f.index); err != nil {
			return fmt.Errorf("greet %v: %w", target, err)
		}
	}
	return nil
}

// answerFlows is the listener's half. It goes on answering repeated hellos until the run begins, because a
// welcome may be lost.
func (u *udpEnd) answerFlows(ctx context.Context, listening func(port int) error) error {
	l := u.Half
	doors, err := listenUDP(l.Request)
	if err == nil {
		err = listening(int(doors[0].at.Port()))
	}
	if err != nil {
		closeUDPListeners(doors)
		return err
	}
	p := &acceptor{end: u, listeners: doors, missing: len(l.Keys), full: make(chan error, 1)}
	if p.event, err = traffic.NewEventFD(); err != nil {
		closeUDPListeners(doors)
		return err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.serve()
	}()
	l.EndSetup = func() {
		p.stop.Store(true)
		p.event.Signal()
		<-done
		p.event.Close()
		if !u.shared {
			closeUDPListeners(doors)
		}
	}
	if u.shared {
		l.Release = func() { closeUDPListeners(doors) }
	}
	select {
	case err = <-p.full:
	case <-ctx.Done():
		err = fmt.Errorf("wait for %d flows on udp %v: %w", len(l.Keys), doors[0].at, ctx.Err())
	}
	if err != nil {
		l.EndSetup()
		l.EndSetup = nil
	}
	return err
}

// udpListener is where flows of one way say hello; many flows share it for their data.
type udpListener struct {
	traffic.Socket
	at       netip.AddrPort
	reported bool // some flow reports its drops
}

// listenUDP opens one on each way, everywhere on the same port.
func listenUDP(q traffic.Request) (doors []*udpListener, err error) {
	port := uint16(q.Port)
	for _, way := range q.Paths() {
		at := netip.AddrPortFrom(way.Addr, port)
		fd, err := traffic.BindUDP(at)
		if err != nil {
			return doors, err
		}
		d := &udpListener{Socket: traffic.Socket{Fd: fd}}
		doors = append(doors, d)
		sa, err := unix.Getsockname(fd)
		if err != nil {
			return doors, fmt.Errorf("read the port of %v: %w", at, err)
		}
		d.at = traffic.AddrPort(sa)
		port = d.at.Port()
		if err := traffic.DontFragment(fd, q.Load.IP); err != nil {
			return doors, fmt.Errorf("forbid fragments on udp %v: %w", d.at, err)
		}
		if err := traffic.MarkDSCP(fd, q.Load); err != nil {
			return doors, err
		}
	}
	return doors, nil
}

func closeUDPListeners(doors []*udpListener) {
	for _, d := range doors {
		d.Close()
	}
}

// acceptor welcomes flows at the listener's port.
type acceptor struct {
	end       *udpEnd
	listeners []*udpListener
	stop      atomic.Bool
	event     traffic.EventFD // says that stop may be set
	full      chan error      // nil once no flow is missing

	missing int // owned by serve, as are the lanes' flows until full
}

// acceptBatch is how many datagrams of one socket are answered in turn.
const acceptBatch = 64

func (p *acceptor) serve() {
	for !p.stop.Load() {
		var fds []int
		for _, d := range p.listeners {
			fds = append(fds, d.Fd)
		}
		for _, f := range p.end.Flows {
			if f != nil && !p.end.shared {
				fds = append(fds, f.(*udpFlow).Fd)
			}
		}
		polls := make([]unix.PollFd, len(fds), len(fds)+1)
		for i, fd := range fds {
			polls[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
		}
		polls = append(polls, unix.PollFd{Fd: int32(p.event), Events: unix.POLLIN})
		if n, err := unix.Poll(polls, int(traffic.HelloInterval.Milliseconds())); err != nil || n == 0 {
			continue
		}
		for i, fd := range fds {
			if polls[i].Revents == 0 {
				continue
			}
			through := p.listeners[0]
			if i < len(p.listeners) {
				through = p.listeners[i]
			}
			if err := p.answerAll(fd, through); err != nil {
				p.say(err)
				return
			}
		}
	}
}

// say tells whether all flows are there, once.
func (p *acceptor) say(err error) {
	select {
	case p.full <- err:
	default:
	}
}

func (p *acceptor) answerAll(fd int, through *udpListener) error {
	for range acceptBatch {
		if more, err := p.answer(fd, through); err != nil || !more {
			return err
		}
	}
	return nil
}

// answer welcomes what one socket has: a new flow at a door, or a flow that did not hear its welcome.
func (p *acceptor) answer(fd int, through *udpListener) (more bool, err error) {
	b := make([]byte, 64)
	n, from, err := unix.Recvfrom(fd, b, unix.MSG_DONTWAIT)
	if err != nil {
		return false, nil // spurious wake-up, or the echo of an ICMP error
	}
	u := p.end
	d, ok := traffic.ReadDatagram(b[:n])
	if !ok || d.Tag != traffic.TagHash(u.Request.Load.Tag) || d.Phase != traffic.PhaseHello ||
		int(d.Flow) >= len(u.Keys) {
		return true, nil // a stray
	}
	if u.Flows[d.Flow] == nil {
		if err := p.admit(int(d.Flow), traffic.AddrPort(from), through); err != nil {
			return false, err
		}
		p.missing--
	}
	traffic.Datagram{Tag: d.Tag, Flow: d.Flow, Phase: traffic.PhaseWelcome}.Put(b)
	if f := u.Flows[d.Flow].(*udpFlow); u.shared {
		unix.Sendto(f.listener.Fd, b[:traffic.DatagramHeader], 0, from)
	} else {
		unix.Write(f.Fd, b[:traffic.DatagramHeader])
	}
	if p.missing == 0 {
		p.say(nil)
	}
	return true, nil
}

func (p *acceptor) admit(i int, from netip.AddrPort, through *udpListener) error {
	if p.end.shared {
		_, err := p.end.newFlow(-1, i, from, through)
		return err
	}
	fd, err := traffic.BindUDP(through.at)
	if err != nil {
		return err
	}
	_, err = p.end.newFlow(fd, i, from, nil)
	return err
}
