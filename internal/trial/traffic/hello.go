package traffic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

const (
	helloInterval = 20 * time.Millisecond // interval between hellos without an answer
	maxRefusals   = 20                    // number of refusals after which sayHello gives up
	// hellosAtOnce limits the number of flows that send hellos at the same time. Each flow needs two round
	// trips.
	hellosAtOnce = 128
)

// SayHello opens a connected socket for each flow on the flow's path. Within Patience, it sends hellos on
// the socket until the listener answers with a welcome. SayHello passes each socket to admit, which then
// owns the socket. When the exchange of hellos has ended, successfully or not, SayHello calls the function
// that admit returned.
func SayHello(ctx context.Context, q Request, keys []FlowKey,
	admit func(flow int, c *net.UDPConn) (ended func(), err error)) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for first := 0; first < len(keys); first += hellosAtOnce {
		last := min(first+hellosAtOnce, len(keys))
		errs := make([]error, last-first+1)
		var saying sync.WaitGroup
		var ends []func()
		for i := first; i < last; i++ {
			c, err := dialUDP(ctx, q.PathOf(keys[i]), q.Port)
			if err != nil {
				errs[last-first] = err
				break
			}

			ended, err := admit(i, c)
			ends = append(ends, ended)
			if err != nil {
				errs[last-first] = err
				break
			}

			saying.Go(func() { errs[i-first] = sayHello(ctx, c, q, i) })
		}

		saying.Wait()
		for _, ended := range ends {
			ended()
		}

		if err := cmp.Or(errs...); err != nil {
			return err
		}
	}

	return nil
}

// sayHello sends hellos of a flow until it receives a welcome.
func sayHello(ctx context.Context, c *net.UDPConn, q Request, flow int) error {
	tag := helloHash(q.Load)
	var cookie uint64
	refusals := 0
	for b := make([]byte, 64); ctx.Err() == nil && refusals < maxRefusals; {
		Datagram{Tag: tag, Flow: uint16(flow), Phase: PhaseHello}.WithCookie(cookie).Put(b)
		_, err := c.Write(b[:DatagramHeader])
		for until := time.Now().Add(helloInterval); err == nil; {
			c.SetReadDeadline(until)
			var n int
			n, err = c.Read(b)
			d, ok := ReadDatagram(b[:n])
			if !ok || d.Tag != tag || int(d.Flow) != flow {
				continue
			}

			if d.Phase == PhaseWelcome {
				return c.SetReadDeadline(time.Time{})
			}

			if d.Phase == PhaseChallenge && d.Cookie() != cookie {
				cookie = d.Cookie()
				break
			}
		}

		switch {
		case err == nil, TimedOut(err):
			continue
		case errors.Is(err, syscall.ECONNREFUSED):
			refusals++
		case !errors.Is(err, syscall.ENOBUFS):
			return fmt.Errorf("say hello to %v: %w", c.RemoteAddr(), host.Cause(err))
		}

		host.Pause(ctx, helloInterval)
	}

	if refusals == maxRefusals {
		return fmt.Errorf("say hello to %v: %w", c.RemoteAddr(), syscall.ECONNREFUSED)
	}

	return fmt.Errorf("say hello to %v: no answer within %v", c.RemoteAddr(), Patience)
}

// TimedOut reports whether a call ended because of its deadline.
func TimedOut(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// HelloServer answers the hellos of a load's flows. Until a sender has returned its cookie, HelloServer
// sends it only the cookie, in a datagram no longer than the hello.
type HelloServer struct {
	Listeners []*net.UDPConn // one per path, with the same port

	part      Part
	cookies   *host.Cookies
	tag       uint32
	admit     Admit
	answering sync.WaitGroup

	mu      sync.Mutex
	from    []netip.AddrPort // sender of each flow, invalid before the flow's hello
	missing int
	full    chan error     // receives nil when the hellos of all flows have arrived, or an error of admit
	own     []*net.UDPConn // sockets of single flows
	over    bool           // no more flows are admitted
}

// Admit admits a flow whose hello arrived at a listener. If the flow has its own socket, Admit returns that
// socket, because repeated hellos arrive there.
type Admit func(flow int, from netip.AddrPort, at *net.UDPConn) (own *net.UDPConn, err error)

// AnswerHellos listens until each flow of a load has sent a hello, or Patience has passed. Repeated hellos
// are answered until Stop, because a welcome may be lost.
func AnswerHellos(ctx context.Context, q Part, flows int,
	admit Admit) (*HelloServer, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	h := &HelloServer{
		part:    q,
		cookies: host.NewCookies(),
		tag:     helloHash(q.Load),
		admit:   admit,
		from:    make([]netip.AddrPort, flows),
		missing: flows,
		full:    make(chan error, 1),
	}
	err := h.listen(ctx)
	if err == nil {
		select {
		case err = <-h.full:
		case <-ctx.Done():
			err = fmt.Errorf("wait for %d flows on udp %v: %w", flows, h.Listeners[0].LocalAddr(), ctx.Err())
		}
	}

	if err != nil {
		h.Close()
	}

	return h, err
}

func (h *HelloServer) listen(ctx context.Context) error {
	port := h.part.Port
	for _, path := range h.part.Paths() {
		c, err := listenUDP(ctx, netip.AddrPortFrom(path.Addr, uint16(port)))
		if err != nil {
			return err
		}

		h.Listeners = append(h.Listeners, c)
		port = c.LocalAddr().(*net.UDPAddr).Port
	}

	for _, c := range h.Listeners {
		h.answering.Go(func() { h.answer(c, true) })
	}

	return h.part.Listening(port)
}

// answer answers the hellos that arrive on a socket. New flows are welcomed only on a listener.
func (h *HelloServer) answer(c *net.UDPConn, listener bool) {
	for b := make([]byte, 64); ; {
		n, from, err := c.ReadFromUDPAddrPort(b)
		if TimedOut(err) || errors.Is(err, net.ErrClosed) {
			return
		}

		flow, answer := h.check(b[:max(n, 0)], from)
		if answer != nil && (flow < 0 || h.take(flow, from, c, listener)) {
			c.WriteToUDPAddrPort(answer, from)
		}
	}
}

// check parses a hello and builds the answer in b. It returns -1 as flow if the flow is not yet identified,
// and nil as answer if there is no answer.
func (h *HelloServer) check(b []byte, from netip.AddrPort) (flow int, answer []byte) {
	d, ok := ReadDatagram(b)
	if !ok || d.Tag != h.tag || d.Phase != PhaseHello || int(d.Flow) >= len(h.from) ||
		!h.part.Hears(from.Addr()) {
		return -1, nil // not a hello of this load
	}

	cookie := h.cookies.Of(from)
	if d.Cookie() != cookie {
		Datagram{Tag: d.Tag, Flow: d.Flow, Phase: PhaseChallenge}.WithCookie(cookie).Put(b)
		return -1, b[:DatagramHeader]
	}

	Datagram{Tag: d.Tag, Flow: d.Flow, Phase: PhaseWelcome}.Put(b)
	return int(d.Flow), b[:DatagramHeader]
}

// take admits a flow on its first hello. It reports whether to welcome the flow.
func (h *HelloServer) take(flow int, from netip.AddrPort, at *net.UDPConn, listener bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.from[flow].IsValid() || !listener || h.over {
		return h.from[flow] == from
	}

	own, err := h.admit(flow, from, at)
	if err != nil {
		h.over = true
		h.full <- err
		return false
	}

	h.from[flow] = from
	if own != nil {
		h.own = append(h.own, own)
		h.answering.Go(func() { h.answer(own, false) })
	}

	if h.missing--; h.missing == 0 {
		h.full <- nil
	}

	return true
}

// Stop stops answering and closes the flows' own sockets. The listeners stay open.
func (h *HelloServer) Stop() {
	h.mu.Lock()
	h.over = true
	for _, c := range h.own {
		c.Close()
	}

	h.own = nil
	h.mu.Unlock()
	for _, c := range h.Listeners {
		c.SetReadDeadline(time.Unix(1, 0))
	}

	h.answering.Wait()
}

// Close calls Stop and closes the listeners.
func (h *HelloServer) Close() {
	h.Stop()
	for _, c := range h.Listeners {
		c.Close()
	}
}

// listenUDP opens a socket for unfragmented datagrams. A requested port may be shared with other sockets;
// a port that the kernel chooses is exclusive.
func listenUDP(ctx context.Context, at netip.AddrPort) (*net.UDPConn, error) {
	lc := net.ListenConfig{Control: func(network, address string, c syscall.RawConn) error {
		if at.Port() != 0 {
			control(c, sharePort)
		}
		return unfragmented(network, address, c)
	}}
	c, err := lc.ListenPacket(ctx, udpNetwork(at.Addr()), at.String())
	if err != nil {
		return nil, fmt.Errorf("bind udp %v: %w", at, host.Cause(err))
	}

	return c.(*net.UDPConn), nil
}

// dialUDP opens a socket for unfragmented datagrams on a path and connects it to a port of the peer.
func dialUDP(ctx context.Context, path Path, port int) (*net.UDPConn, error) {
	to := netip.AddrPortFrom(path.Peer, uint16(port)).String()
	d := net.Dialer{
		LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(path.Addr, 0)),
		Control:   unfragmented,
	}
	c, err := d.DialContext(ctx, udpNetwork(path.Addr), to)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", to, host.Cause(err))
	}

	return c.(*net.UDPConn), nil
}

// udpNetwork returns the name of the network for an address: "udp4" or "udp6".
func udpNetwork(a netip.Addr) string {
	if a.Unmap().Is4() {
		return "udp4"
	}
	return "udp6"
}

// unfragmented makes a socket return an error if a packet would have to be fragmented, because fragments
// differ in size from the packets to measure.
func unfragmented(network, _ string, c syscall.RawConn) error {
	ip := 4
	if network == "udp6" {
		ip = 6
	}

	if err := control(c, func(fd int) error { return DontFragment(fd, ip) }); err != nil {
		return fmt.Errorf("forbid fragments: %w", err)
	}

	return nil
}

// Control calls do with the file descriptor of a socket.
func Control(c syscall.Conn, do func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return control(raw, do)
}

func control(raw syscall.RawConn, do func(fd int) error) error {
	var err error
	outer := raw.Control(func(fd uintptr) { err = do(int(fd)) })
	return errors.Join(outer, err)
}
