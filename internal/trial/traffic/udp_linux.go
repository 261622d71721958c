package traffic

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// knock is how often the opener repeats its hello until it is welcomed.
const (
	knock       = 20 * time.Millisecond
	maxRefusals = 20 // then nobody is listening there
)

// connectUDP makes the flows. The opener's hello shows the listener where a flow comes from, behind any
// NAT, and opens the way back. All flows share the listener's one port, so that a single port forward
// carries them. There each has a connected socket, or, where there are many, all share that of the port:
// kernels before 6.13 search through all sockets of a port for each packet.
func connectUDP(ctx context.Context, q request, keys []flowKey, listening func(port int) error) (*lanes,
	error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	l := &lanes{request: q, keys: keys, flows: make([]flow, len(keys)), details: map[string]string{}}
	u := &udpEnd{lanes: l, shared: q.Listen && len(keys) > ownThreads, trains: map[netip.Addr]train{}}
	var err error
	if q.Listen {
		err = u.answerFlows(ctx, listening)
	} else {
		err = u.sayHello(ctx)
	}
	if err != nil {
		l.close()
		return nil, err
	}
	l.crews = u.crews()
	l.mode = u.mode
	l.details["rcvbuf_bytes"] = strconv.Itoa(u.rcvbuf) // of each socket
	l.details["sndbuf_bytes"] = strconv.Itoa(u.sndbuf)
	l.details["uncut_trains"] = strconv.FormatBool(u.uncut())
	return l, nil
}

// udpEnd is one end of a UDP load.
type udpEnd struct {
	*lanes
	shared         bool // the flows share the listener's doors
	trains         map[netip.Addr]train
	rcvbuf, sndbuf int
}

// newFlow makes a flow of a socket that is bound, and connects it; or, where the flows share a door, of
// that.
func (u *udpEnd) newFlow(fd, i int, peer netip.AddrPort, through *door) (*udpFlow, error) {
	q := u.request
	if through == nil {
		if err := prepareUDP(fd, q.Load, peer); err != nil {
			unix.Close(fd)
			return nil, err
		}
	}
	f := newUDPFlow(fd, q, i, u.keys[i], len(u.keys))
	if through != nil {
		f.door, f.to, f.addr = through, newPeer(peer), through.at.String()
		if !through.reported {
			f.drops, through.reported = &through.socket, true
			f.rcvbuf, f.sndbuf = udpRoom(&through.socket, 1)
		}
	}
	if f.rcvbuf > 0 {
		u.rcvbuf, u.sndbuf = f.rcvbuf, f.sndbuf
	}
	u.flows[i] = f
	if !f.sends || q.Load.Trains == record.TrainsOff || len(q.Load.Sizes) > 0 {
		return f, nil
	}
	t, known := u.trains[peer.Addr()]
	if !known {
		t = trainTo(peer.Addr(), f.payload, f.count)
		u.trains[peer.Addr()] = t
	}
	f.train = t.begin(f.through(), f.payload)
	return f, nil
}

// prepareUDP connects a socket and sets what concerns what it sends.
func prepareUDP(fd int, load record.Load, peer netip.AddrPort) error {
	_, sa := sockaddr(peer)
	if err := unix.Connect(fd, sa); err != nil {
		return fmt.Errorf("connect udp to %v: %w", peer, err)
	}
	if err := dontFragment(fd, load.IP); err != nil {
		return fmt.Errorf("forbid fragments on udp to %v: %w", peer, err)
	}
	return markDSCP(fd, load)
}

// crews gives each flow a thread, or deals them: those with sockets of their own to one thread per core and
// way, those that come through a door to one.
func (u *udpEnd) crews() []crew {
	own := len(u.keys) <= ownThreads
	var senders []*udpFlow
	var crews []crew
	receivers := map[*door][]*udpFlow{}
	for _, f := range u.flows {
		f := f.(*udpFlow)
		switch {
		case own && f.sends:
			crews = append(crews, newUDPSource([]*udpFlow{f}, u.request, len(u.keys)))
		case own:
			crews = append(crews, newUDPSink([]*udpFlow{f}, len(u.keys)))
		case f.sends:
			senders = append(senders, f)
		default:
			receivers[f.door] = append(receivers[f.door], f)
		}
	}
	cores := len(allowedCPUs())
	for _, hand := range deal(senders, cores) {
		crews = append(crews, newUDPSource(hand, u.request, len(u.keys)))
	}
	for d, flows := range receivers {
		parts := cores
		if d != nil {
			parts = 1
		}
		for _, hand := range deal(flows, parts) {
			crews = append(crews, newUDPSink(hand, len(u.keys)))
		}
	}
	return crews
}

// mode describes how this end sent and received.
func (u *udpEnd) mode() string {
	send, receive := "", ""
	polls := fmt.Sprintf("%v, or %v with ample room", receivePoll, amplePoll)
	for _, f := range u.flows {
		f := f.(*udpFlow)
		switch {
		case !f.sends:
			receive = "receive every datagram with its time, polled each " + polls
			if f.count {
				receive = "receive trains joined by the kernel (UDP_GRO), polled each " + polls
			}
		case f.train.most > 1 && f.train.uncut:
			send = fmt.Sprintf("send trains of up to %d, which the first device takes uncut", f.train.most)
		case f.train.most > 1:
			send = fmt.Sprintf("send trains of up to %d, which the kernel cuts before the first device",
				f.train.most)
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
	return fmt.Sprintf("udp, %s mode: %s", udpMode(u.request.Load), strings.Join(parts, "; "))
}

// uncut says whether the first device was given trains whole.
func (u *udpEnd) uncut() bool {
	for _, t := range u.trains {
		if t.uncut {
			return true
		}
	}
	return false
}

// sayHello is the opener's half: it greets for each flow until it is answered.
func (u *udpEnd) sayHello(ctx context.Context) error {
	q := u.request
	for i, k := range u.keys {
		way := q.wayOf(k)
		target := netip.AddrPortFrom(way.peer, uint16(q.Port))
		fd, err := bindUDP(netip.AddrPortFrom(way.addr, 0))
		if err != nil {
			return err
		}
		f, err := u.newFlow(fd, i, target, nil)
		if err != nil {
			return err
		}
		if err := greet(ctx, f.fd, f.tag, f.index); err != nil {
			return fmt.Errorf("greet %v: %w", target, err)
		}
	}
	return nil
}

// greet says hello on a connected socket until it is welcomed.
func greet(ctx context.Context, fd int, tag uint32, flow uint16) error {
	hello := make([]byte, datagramHeader)
	datagram{tag: tag, flow: flow, phase: phaseHello}.put(hello)
	answer := make([]byte, 64)
	refused := 0
	for ctx.Err() == nil && refused < maxRefusals {
		if _, err := unix.Write(fd, hello); err == unix.ECONNREFUSED {
			refused++
		} else if err != nil && err != unix.EINTR {
			return err
		}
		if !readable(fd, knock) {
			continue
		}
		n, _, err := unix.Recvfrom(fd, answer, unix.MSG_DONTWAIT)
		if err == unix.ECONNREFUSED {
			refused++
			nap(knock)
		}
		d, ok := readDatagram(answer[:max(n, 0)])
		if ok && d.tag == tag && d.flow == flow && d.phase == phaseWelcome {
			return nil
		}
	}
	if refused > 0 {
		return unix.ECONNREFUSED
	}
	return fmt.Errorf("no answer within %v", patience)
}

// readable waits until something can be read.
func readable(fd int, d time.Duration) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, int(d.Milliseconds()))
	return err == nil && n > 0
}

// bell ends the waiting of a thread that answers, so that the run need not wait for it.
type bell int

const noBell bell = -1

func newBell() (bell, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return noBell, fmt.Errorf("open an event counter: %w", err)
	}
	return bell(fd), nil
}

func (b bell) ring() {
	if b != noBell {
		unix.Write(int(b), binary.NativeEndian.AppendUint64(nil, 1))
	}
}

func (b bell) close() {
	if b != noBell {
		unix.Close(int(b))
	}
}

// readable waits until something can be read, or the bell rings.
func (b bell) readable(fd int, d time.Duration) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(b), Events: unix.POLLIN}}
	_, err := unix.Poll(p, int(d.Milliseconds()))
	return err == nil && p[0].Revents != 0
}

// answerFlows is the listener's half. It goes on answering repeated hellos until the run begins, because a
// welcome may be lost.
func (u *udpEnd) answerFlows(ctx context.Context, listening func(port int) error) error {
	l := u.lanes
	doors, err := openUDPDoors(l.request)
	if err == nil {
		err = listening(int(doors[0].at.Port()))
	}
	if err != nil {
		closeUDPDoors(doors)
		return err
	}
	p := &porter{end: u, doors: doors, missing: len(l.keys), full: make(chan error, 1)}
	if p.bell, err = newBell(); err != nil {
		closeUDPDoors(doors)
		return err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.serve()
	}()
	l.quiet = func() {
		p.stop.Store(true)
		p.bell.ring()
		<-done
		p.bell.close()
		if !u.shared {
			closeUDPDoors(doors)
		}
	}
	if u.shared {
		l.shut = func() { closeUDPDoors(doors) }
	}
	select {
	case err = <-p.full:
	case <-ctx.Done():
		err = fmt.Errorf("wait for %d flows on udp %v: %w", len(l.keys), doors[0].at, ctx.Err())
	}
	if err != nil {
		l.quiet()
		l.quiet = nil
	}
	return err
}

// door is where flows of one way say hello; many flows share it for their data.
type door struct {
	socket
	at       netip.AddrPort
	reported bool // some flow reports its drops
}

// openUDPDoors opens one on each way, everywhere on the same port.
func openUDPDoors(q request) (doors []*door, err error) {
	port := uint16(q.Port)
	for _, way := range q.ways() {
		at := netip.AddrPortFrom(way.addr, port)
		fd, err := bindUDP(at)
		if err != nil {
			return doors, err
		}
		d := &door{socket: socket{fd: fd}}
		doors = append(doors, d)
		sa, err := unix.Getsockname(fd)
		if err != nil {
			return doors, fmt.Errorf("read the port of %v: %w", at, err)
		}
		d.at = addrPort(sa)
		port = d.at.Port()
		if err := dontFragment(fd, q.Load.IP); err != nil {
			return doors, fmt.Errorf("forbid fragments on udp %v: %w", d.at, err)
		}
		if err := markDSCP(fd, q.Load); err != nil {
			return doors, err
		}
	}
	return doors, nil
}

func closeUDPDoors(doors []*door) {
	for _, d := range doors {
		d.close()
	}
}

// porter welcomes flows at the listener's port.
type porter struct {
	end   *udpEnd
	doors []*door
	stop  atomic.Bool
	bell  bell       // says that stop may be set
	full  chan error // nil once no flow is missing

	missing int // owned by serve, as are the lanes' flows until full
}

// porterPatience is how many datagrams of one socket are answered in turn.
const porterPatience = 64

func (p *porter) serve() {
	for !p.stop.Load() {
		var fds []int
		for _, d := range p.doors {
			fds = append(fds, d.fd)
		}
		for _, f := range p.end.flows {
			if f != nil && !p.end.shared {
				fds = append(fds, f.(*udpFlow).fd)
			}
		}
		polls := make([]unix.PollFd, len(fds), len(fds)+1)
		for i, fd := range fds {
			polls[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
		}
		polls = append(polls, unix.PollFd{Fd: int32(p.bell), Events: unix.POLLIN})
		if n, err := unix.Poll(polls, int(knock.Milliseconds())); err != nil || n == 0 {
			continue
		}
		for i, fd := range fds {
			if polls[i].Revents == 0 {
				continue
			}
			through := p.doors[0]
			if i < len(p.doors) {
				through = p.doors[i]
			}
			if err := p.answerAll(fd, through); err != nil {
				p.say(err)
				return
			}
		}
	}
}

// say tells whether all flows are there, once.
func (p *porter) say(err error) {
	select {
	case p.full <- err:
	default:
	}
}

func (p *porter) answerAll(fd int, through *door) error {
	for range porterPatience {
		if more, err := p.answer(fd, through); err != nil || !more {
			return err
		}
	}
	return nil
}

// answer welcomes what one socket has: a new flow at a door, or a flow that did not hear its welcome.
func (p *porter) answer(fd int, through *door) (more bool, err error) {
	b := make([]byte, 64)
	n, from, err := unix.Recvfrom(fd, b, unix.MSG_DONTWAIT)
	if err != nil {
		return false, nil // spurious wake-up, or the echo of an ICMP error
	}
	u := p.end
	d, ok := readDatagram(b[:n])
	if !ok || d.tag != tagHash(u.request.Load.Tag) || d.phase != phaseHello || int(d.flow) >= len(u.keys) {
		return true, nil // a stray
	}
	if u.flows[d.flow] == nil {
		if err := p.admit(int(d.flow), addrPort(from), through); err != nil {
			return false, err
		}
		p.missing--
	}
	datagram{tag: d.tag, flow: d.flow, phase: phaseWelcome}.put(b)
	if f := u.flows[d.flow].(*udpFlow); u.shared {
		unix.Sendto(f.door.fd, b[:datagramHeader], 0, from)
	} else {
		unix.Write(f.fd, b[:datagramHeader])
	}
	if p.missing == 0 {
		p.say(nil)
	}
	return true, nil
}

func (p *porter) admit(i int, from netip.AddrPort, through *door) error {
	if p.end.shared {
		_, err := p.end.newFlow(-1, i, from, through)
		return err
	}
	fd, err := bindUDP(through.at)
	if err != nil {
		return err
	}
	_, err = p.end.newFlow(fd, i, from, nil)
	return err
}
