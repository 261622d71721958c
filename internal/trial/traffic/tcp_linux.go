package traffic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// introduction is how long a stranger may hold a connection open without a valid preamble.
const introduction = 3 * time.Second

// connectTCP makes one connection per flow, whoever sends in it.
func connectTCP(ctx context.Context, q request, keys []flowKey, listening func(port int) error) (*lanes,
	error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	l := &lanes{request: q, keys: keys, flows: make([]flow, len(keys)), details: map[string]string{}}
	var conns []*net.TCPConn
	var err error
	if q.Listen {
		conns, err = acceptFlows(ctx, q, len(keys), listening)
	} else {
		conns, err = dialFlows(ctx, q, keys)
	}
	defer func() {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
	}()
	if err != nil {
		return nil, err
	}
	way := wayTo(q.Peer, q.Load.Verify, len(keys), len(allowedCPUs()))
	shared := newTCPBuffers(q)
	for i, c := range conns {
		f, err := newTCPFlow(c, q, i, keys[i], way)
		if err != nil {
			l.close()
			return nil, err
		}
		conns[i] = nil
		c.Close() // the flow has its own descriptor
		f.prepare(shared)
		l.flows[i] = f
	}
	l.crews = tcpCrews(l.flows, way.pool)
	l.mode = way.String
	l.details["congestion"] = tcpCongestion(l.flows)
	return l, nil
}

// tcpCrews gives each flow a thread, or deals them to one thread per core and way.
func tcpCrews(flows []flow, pool bool) []crew {
	var crews []crew
	var ways [2][]*tcpFlow // receivers, senders
	for _, f := range flows {
		f := f.(*tcpFlow)
		switch {
		case !pool:
			crews = append(crews, f)
		case f.sends:
			ways[1] = append(ways[1], f)
		default:
			ways[0] = append(ways[0], f)
		}
	}
	for w, of := range ways {
		for _, hand := range deal(of, len(allowedCPUs())) {
			crews = append(crews, &tcpPool{flows: hand, sends: w == 1})
		}
	}
	return crews
}

// tcpCongestion names the controls in use, each once, in the order in which streams take them.
func tcpCongestion(flows []flow) string {
	var names []string
	for _, f := range flows {
		if cc := f.(*tcpFlow).congestion; !slices.Contains(names, cc) {
			names = append(names, cc)
		}
	}
	return strings.Join(names, "+")
}

// tune sets what must be set before the connection is made.
func tune(load record.Load, congestion string) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var err error
		outer := c.Control(func(fd uintptr) { err = tuneTCP(int(fd), load, congestion) })
		return errors.Join(outer, err)
	}
}

func tuneTCP(fd int, load record.Load, congestion string) error {
	if congestion != "" {
		if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, congestion); err != nil {
			return fmt.Errorf("set congestion control %s: %w", congestion, err)
		}
	}
	if load.MSS > 0 {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG, load.MSS); err != nil {
			return fmt.Errorf("set segment size %d: %w", load.MSS, err)
		}
	}
	if load.Buffer > 0 {
		s := &socket{fd: fd}
		// The kernel doubles what is asked for, to have room for its own use.
		bigBuffer(s, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, load.Buffer/2)
		if got := bigBuffer(s, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, load.Buffer/2); got < load.Buffer/2*2 {
			return fmt.Errorf("set socket buffers of %d bytes: the kernel gives %d at most", load.Buffer, got)
		}
	}
	return markDSCP(fd, load)
}

func dialFlows(ctx context.Context, q request, keys []flowKey) ([]*net.TCPConn, error) {
	conns := make([]*net.TCPConn, len(keys))
	for i, k := range keys {
		way := q.wayOf(k)
		d := net.Dialer{
			LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(way.addr, 0)),
			Control:   tune(q.Load, congestionOf(q.Load, k)), KeepAlive: -1,
		}
		d.SetMultipathTCP(false)
		target := netip.AddrPortFrom(way.peer, uint16(q.Port)).String()
		c, err := d.DialContext(ctx, "tcp", target)
		if err != nil {
			return conns, fmt.Errorf("connect to %s: %w", target, cause(err))
		}
		conns[i] = c.(*net.TCPConn)
		if err := introduce(ctx, c, q.Load.Tag, i); err != nil {
			return conns, fmt.Errorf("introduce stream to %s: %w", target, err)
		}
	}
	return conns, nil
}

// cause drops the wordy wrapping of net's errors, which repeats addresses.
func cause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

func introduce(ctx context.Context, c net.Conn, tag string, flow int) error {
	if t, ok := ctx.Deadline(); ok {
		c.SetDeadline(t)
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	if _, err := c.Write(preamble(tag, flow)); err != nil {
		return cause(err)
	}
	b := make([]byte, welcomeSize)
	if _, err := io.ReadFull(c, b); err != nil {
		return cause(err)
	}
	if string(b) != string(welcome(tag)) {
		return errors.New("somebody else is listening there")
	}
	return c.SetDeadline(time.Time{})
}

// acceptFlows listens until each flow has introduced itself. Strangers are dropped and never hold up the
// others.
func acceptFlows(ctx context.Context, q request, n int, listening func(port int) error) ([]*net.TCPConn,
	error) {
	doors, port, err := openDoors(ctx, q)
	if err == nil {
		err = listening(port)
	}
	if err != nil {
		closeDoors(doors)
		return nil, err
	}
	h := hall{tag: q.Load.Tag, waiting: crowd{most: n + maxStrangers}, conns: make([]*net.TCPConn, n),
		missing: n, full: make(chan struct{})}
	var guests sync.WaitGroup
	for _, ln := range doors {
		guests.Go(func() { h.receive(ln, &guests) })
	}
	select {
	case <-h.full:
		err = nil
	case <-ctx.Done():
		err = fmt.Errorf("wait for %d connections on %v port %d: %w", n, q.Addr, port, ctx.Err())
	}
	closeDoors(doors)
	h.end()
	guests.Wait()
	return h.conns, err
}

// openDoors listens on each way, everywhere on the same port.
func openDoors(ctx context.Context, q request) (doors []net.Listener, port int, err error) {
	lc := net.ListenConfig{Control: tune(q.Load, congestionOf(q.Load, flowKey{Stream: 1})), KeepAlive: -1}
	lc.SetMultipathTCP(false)
	port = q.Port
	for _, way := range q.ways() {
		at := netip.AddrPortFrom(way.addr, uint16(port))
		ln, err := lc.Listen(ctx, "tcp", at.String())
		if err != nil {
			return doors, port, fmt.Errorf("listen on %v: %w", at, cause(err))
		}
		doors, port = append(doors, ln), ln.Addr().(*net.TCPAddr).Port
	}
	return doors, port, nil
}

func closeDoors(doors []net.Listener) {
	for _, ln := range doors {
		ln.Close()
	}
}

// maxStrangers is how many connections may wait that are not the load's.
const maxStrangers = 64

// hall is where connections wait until they are recognised.
type hall struct {
	tag  string
	full chan struct{} // closed when nobody is missing

	mu      sync.Mutex
	waiting crowd // not yet recognised
	conns   []*net.TCPConn
	missing int
	over    bool
}

func (h *hall) receive(ln net.Listener, guests *sync.WaitGroup) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		h.mu.Lock()
		over := h.over
		if !over {
			h.waiting.enter(c)
		}
		h.mu.Unlock()
		if over {
			c.Close()
			return
		}
		guests.Go(func() { h.greet(c.(*net.TCPConn)) })
	}
}

func (h *hall) greet(c *net.TCPConn) {
	c.SetDeadline(time.Now().Add(introduction))
	b := make([]byte, preambleSize)
	_, err := io.ReadFull(c, b)
	i, known := readPreamble(b, h.tag, len(h.conns))
	if err != nil || !known || !h.admit(i, c) {
		c.Close()
	}
	h.mu.Lock()
	h.waiting.leave(c)
	h.mu.Unlock()
}

func (h *hall) admit(i int, c *net.TCPConn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over || h.conns[i] != nil {
		return false
	}
	if _, err := c.Write(welcome(h.tag)); err != nil {
		return false
	}
	c.SetDeadline(time.Time{})
	h.waiting.leave(c)
	h.conns[i] = c
	if h.missing--; h.missing == 0 {
		close(h.full)
	}
	return true
}

// end sends the strangers away.
func (h *hall) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	for _, c := range h.waiting.conns {
		c.Close()
	}
}

// newTCPFlow takes the descriptor out of Go's poller: a thread that blocks in the kernel is what the
// measurement wants.
func newTCPFlow(c *net.TCPConn, q request, i int, k flowKey, way tcpWay) (*tcpFlow, error) {
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
	f := &tcpFlow{socket: socket{fd: fd}, key: k, sends: k.sends(q.Side), way: way,
		pattern: newPattern(q.Load.Tag, i), verify: q.Load.Verify}
	if err := f.settle(q); err != nil {
		unix.Close(fd)
		return nil, err
	}
	f.addr = f.local()
	return f, nil
}

// settle sets what may differ between the streams of one listener.
func (f *tcpFlow) settle(q request) error {
	want := congestionOf(q.Load, f.key)
	if want != "" {
		unix.SetsockoptString(f.fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, want) // read back below
	}
	cc, err := unix.GetsockoptString(f.fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	if err != nil || want != "" && cc != want {
		return fmt.Errorf("congestion control is %q after setting %q: %v", cc, want, err)
	}
	f.congestion = cc
	if q.Load.RateBps <= 0 || !f.sends {
		return nil
	}
	// The kernel paces the payload; each stream has an equal share.
	bytes := q.Load.RateBps / 8 / float64(len(flowsOf(q.Load)))
	if err := setPacing(f.fd, uint64(math.Ceil(bytes))); err != nil {
		return fmt.Errorf("pace at %.0f bytes per second: %w", bytes, err)
	}
	return nil
}
