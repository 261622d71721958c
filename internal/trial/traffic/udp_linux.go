package traffic

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// knock is how often the opener repeats its hello until it is welcomed.
const (
	knock       = 20 * time.Millisecond
	maxRefusals = 20 // then nobody is listening there
)

// connectUDP makes one connected socket per flow at each end. The opener's
// hello shows the listener where the flow comes from, behind any NAT, and
// opens the way back. All flows share the listener's one port, so that a
// single port forward carries them.
func connectUDP(ctx context.Context, q request, keys []flowKey, listening func(port int) error) (*lanes, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	l := &lanes{request: q, keys: keys, flows: make([]flow, len(keys)), details: map[string]string{}}
	var err error
	if q.Listen {
		err = l.answerFlows(ctx, listening)
	} else {
		err = l.sayHello(ctx)
	}
	if err != nil {
		l.close()
		return nil, err
	}
	for _, f := range l.flows {
		l.crews = append(l.crews, f.(*udpFlow))
	}
	l.mode = l.udpMode
	f := l.flows[0].(*udpFlow)
	l.details["rcvbuf_bytes"] = strconv.Itoa(f.rcvbuf) // of each socket
	l.details["sndbuf_bytes"] = strconv.Itoa(f.sndbuf)
	return l, nil
}

// newFlow makes a flow of a socket that is bound, and connects it.
func (l *lanes) newFlow(fd, i int, peer netip.AddrPort) (*udpFlow, error) {
	_, sa := sockaddr(peer)
	if err := unix.Connect(fd, sa); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("connect udp to %v: %w", peer, err)
	}
	if err := dontFragment(fd, l.request.Load.IP); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("forbid fragments on udp to %v: %w", peer, err)
	}
	f := newUDPFlow(fd, l.request, i, l.keys[i], len(l.keys))
	if f.sends {
		f.train = trains(fd, f.payload, peer.Addr())
	}
	l.flows[i] = f
	return f, nil
}

// maxTrainCut is how many datagrams one call may carry (UDP_MAX_SEGMENTS was
// 64 before kernel 6.9).
const maxTrainCut = 64

// trains turns on the kernel's cutting of one large write into datagrams
// (UDP_SEGMENT), which saves most of the cost of sending, and returns how
// many go together. It does so only where the kernel cuts before the first
// device: a device that takes the whole train would carry it uncut through a
// virtual network, and what is forwarded would be no packets. The receiver
// gets single datagrams either way.
func trains(fd, payload int, to netip.Addr) int {
	dev, err := kernel.RouteDevice(to)
	if err != nil {
		return 0
	}
	features, err := kernel.Features(dev)
	if err != nil || !cutsFirst(features, to) {
		return 0
	}
	n := min(maxTrainCut, (1<<16-256)/payload)
	if n < 2 || unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT, payload) != nil {
		return 0
	}
	return n
}

// cutsFirst reports whether a kernel cuts trains before a device with these
// features. Kernels before 6.11 refuse every datagram of a socket that sends
// trains, short ones too, where the device leaves check sums to them, as that
// of OpenVPN does.
func cutsFirst(features map[string]bool, to netip.Addr) bool {
	sums := "tx-checksum-ipv4"
	if to.Is6() {
		sums = "tx-checksum-ipv6"
	}
	whole, known := features["tx-udp-segmentation"]
	return known && !whole && (features["tx-checksum-ip-generic"] || features[sums])
}

// udpMode describes how this end sent and received.
func (l *lanes) udpMode() string {
	for _, f := range l.flows {
		if f := f.(*udpFlow); f.sends && f.train > 1 {
			return fmt.Sprintf("udp: exact, trains of up to %d cut by the kernel before the first device, receiver polled", f.train)
		}
	}
	return "udp: exact, sendmmsg, receiver polled"
}

// sayHello is the opener's half: it greets for each flow until it is
// answered.
func (l *lanes) sayHello(ctx context.Context) error {
	q := l.request
	for i, k := range l.keys {
		way := q.wayOf(k)
		target := netip.AddrPortFrom(way.peer, uint16(q.Port))
		fd, err := bindUDP(netip.AddrPortFrom(way.addr, 0))
		if err != nil {
			return err
		}
		f, err := l.newFlow(fd, i, target)
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

// answerFlows is the listener's half. It goes on answering repeated hellos
// until the run begins, because a welcome may be lost.
func (l *lanes) answerFlows(ctx context.Context, listening func(port int) error) error {
	doors, err := openUDPDoors(l.request)
	if err == nil {
		err = listening(int(doors[0].at.Port()))
	}
	if err != nil {
		closeUDPDoors(doors)
		return err
	}
	p := &porter{lanes: l, doors: doors, missing: len(l.keys), full: make(chan error, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.serve()
	}()
	l.quiet = func() {
		p.stop.Store(true)
		<-done
		closeUDPDoors(doors)
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

// door is where flows of one way say hello.
type door struct {
	socket
	at netip.AddrPort
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
	lanes *lanes
	doors []*door
	stop  atomic.Bool
	full  chan error // nil once no flow is missing

	missing int // owned by serve, as are the lanes' flows until full
}

func (p *porter) serve() {
	for !p.stop.Load() {
		var fds []int
		for _, d := range p.doors {
			fds = append(fds, d.fd)
		}
		for _, f := range p.lanes.flows {
			if f != nil {
				fds = append(fds, f.(*udpFlow).fd)
			}
		}
		polls := make([]unix.PollFd, len(fds))
		for i, fd := range fds {
			polls[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
		}
		if n, err := unix.Poll(polls, int(knock.Milliseconds())); err != nil || n == 0 {
			continue
		}
		for i, fd := range fds {
			if polls[i].Revents == 0 {
				continue
			}
			at := p.doors[0].at
			if i < len(p.doors) {
				at = p.doors[i].at
			}
			if err := p.answer(fd, at); err != nil {
				select {
				case p.full <- err:
				default:
				}
				return
			}
		}
	}
}

// answer welcomes what one socket has: a new flow at the door that is at an
// address, or a flow that did not hear its welcome.
func (p *porter) answer(fd int, at netip.AddrPort) error {
	b := make([]byte, 64)
	n, from, err := unix.Recvfrom(fd, b, unix.MSG_DONTWAIT)
	if err != nil {
		return nil // spurious wake-up, or the echo of an ICMP error
	}
	l := p.lanes
	d, ok := readDatagram(b[:n])
	if !ok || d.tag != tagHash(l.request.Load.Tag) || d.phase != phaseHello || int(d.flow) >= len(l.keys) {
		return nil // a stray
	}
	if l.flows[d.flow] == nil {
		nfd, err := bindUDP(at)
		if err != nil {
			return err
		}
		if _, err := l.newFlow(nfd, int(d.flow), addrPort(from)); err != nil {
			return err
		}
		p.missing--
	}
	datagram{tag: d.tag, flow: d.flow, phase: phaseWelcome}.put(b)
	unix.Write(l.flows[d.flow].(*udpFlow).fd, b[:datagramHeader])
	if p.missing == 0 {
		select {
		case p.full <- nil:
		default:
		}
	}
	return nil
}
