package responsiveness

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// mostForeign bounds how many foreign connections are under way at once.
const mostForeign = 64

// requester makes the requests of a window: until a second, or a quarter of the window, before its end, so
// that each has time to be answered while the load goes on.
type requester struct {
	request traffic.Request
	flows   []*requestFlow
	start   int64
	until   int64
	cancel  context.CancelFunc
	stop    atomic.Bool
	busy    sync.WaitGroup
	foreign chan struct{} // one token for each connection under way

	mu      sync.Mutex
	seen    record.Responsiveness
	pending map[*requestFlow]bool // a request of it is not answered
}

func newRequester(q traffic.Request, flows []traffic.Flow, w record.Window) *requester {
	r := &requester{
		request: q, start: w.Start, until: w.End - min(int64(time.Second), (w.End-w.Start)/4),
		foreign: make(chan struct{}, mostForeign), pending: map[*requestFlow]bool{},
		seen: record.Responsiveness{
			ForeignAt: []int64{}, Connect: []int64{}, Exchange: []int64{}, LoadedAt: []int64{},
			Loaded: []int64{},
		},
	}
	r.cancel = func() {}
	for _, f := range flows {
		f := f.(*requestFlow)
		f.answered = func(id uint64) { r.answer(f, id) }
		r.flows = append(r.flows, f)
	}
	return r
}

func (r *requester) begin(ctx context.Context) {
	ctx, r.cancel = context.WithCancel(ctx)
	r.busy.Go(func() { r.each(func(int) { r.goForeign(ctx) }, 0) })
	r.busy.Go(func() { r.each(r.askLoaded, requestInterval/2) })
}

// finish abandons what is still under way.
func (r *requester) finish() {
	r.stop.Store(true)
	r.cancel()
	r.busy.Wait()
}

// each calls do at every interval, with its number.
func (r *requester) each(do func(int), shift time.Duration) {
	traffic.OwnThread()
	for i := 0; ; i++ {
		due := r.start + int64(shift) + int64(i)*int64(requestInterval)
		if due >= r.until {
			return
		}
		traffic.SleepUntil(due, &r.stop)
		if r.stop.Load() {
			return
		}
		do(i)
	}
}

// goForeign connects, asks and leaves, beside everything else.
func (r *requester) goForeign(ctx context.Context) {
	select {
	case r.foreign <- struct{}{}:
	default: // so many unanswered ones say enough
		r.note(traffic.Monotonic(), -1, -1)
		return
	}
	r.busy.Go(func() {
		defer func() { <-r.foreign }()
		at := traffic.Monotonic()
		connect, exchange := r.visit(ctx, at)
		r.note(at, connect, exchange)
	})
}

func (r *requester) note(at, connect, exchange int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.seen
	s.ForeignAt, s.Connect, s.Exchange = append(s.ForeignAt, at), append(s.Connect, connect),
		append(s.Exchange, exchange)
}

// visit makes one foreign connection. It is closed by a reset, so that no end has to keep it in mind.
func (r *requester) visit(ctx context.Context, at int64) (connect, exchange int64) {
	q := r.request
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(q.Addr, 0)),
		Control:   traffic.Tune(q.Load, traffic.CongestionOf(q.Load, traffic.FlowKey{Stream: 1})),
		KeepAlive: -1}
	d.SetMultipathTCP(false)
	c, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(q.Peer, uint16(q.Port)).String())
	if err != nil {
		return -1, -1
	}
	connected := traffic.Monotonic()
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })()
	c.(*net.TCPConn).SetLinger(0)
	b := make([]byte, traffic.WelcomeSize)
	asked := traffic.Monotonic()
	if _, err := c.Write(traffic.Preamble(q.Load.Tag, len(r.flows))); err != nil {
		return connected - at, -1
	}
	if _, err := io.ReadFull(c, b); err != nil || string(b) != string(traffic.Welcome(q.Load.Tag)) {
		return connected - at, -1
	}
	return connected - at, traffic.Monotonic() - asked
}

// askLoaded gives a request to the next connection that has none under way.
func (r *requester) askLoaded(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := traffic.Monotonic()
	for k := range r.flows {
		f := r.flows[(i+k)%len(r.flows)]
		if r.pending[f] {
			continue
		}
		select {
		case f.outbox <- frame{kind: frameRequest, id: uint64(len(r.seen.Loaded))}:
		default:
			continue
		}
		r.pending[f] = true
		r.seen.LoadedAt, r.seen.Loaded = append(r.seen.LoadedAt, at), append(r.seen.Loaded, -1)
		return
	}
	r.seen.Skipped++
}

func (r *requester) answer(f *requestFlow, id uint64) {
	at := traffic.Monotonic()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending[f] && id < uint64(len(r.seen.Loaded)) && r.seen.Loaded[id] < 0 {
		r.seen.Loaded[id] = max(at-r.seen.LoadedAt[id], 1)
		r.pending[f] = false
	}
}

// acceptor is where the listener answers foreign connections while the load runs. Whoever does not show the
// load's preamble is sent away.
type acceptor struct {
	listener net.Listener
	tag      string
	number   int // that a foreign connection gives itself
	serving  sync.WaitGroup

	mu      sync.Mutex
	conns   map[net.Conn]bool
	pending traffic.PendingConns // those of them that have shown nothing yet
	over    bool
}

// openAcceptor listens where the flows were accepted.
func openAcceptor(ctx context.Context, q traffic.Request, port, number int) (*acceptor, error) {
	at := netip.AddrPortFrom(q.Addr, uint16(port))
	lc := net.ListenConfig{Control: traffic.Tune(q.Load, traffic.CongestionOf(q.Load,
		traffic.FlowKey{Stream: 1})), KeepAlive: -1}
	lc.SetMultipathTCP(false)
	door, err := lc.Listen(ctx, "tcp", at.String())
	if err != nil {
		return nil, fmt.Errorf("listen for requests on %v: %w", at, traffic.Cause(err))
	}
	p := &acceptor{listener: door, tag: q.Load.Tag, number: number, conns: map[net.Conn]bool{},
		pending: traffic.PendingConns{Most: 2 * mostForeign}}
	p.serving.Go(p.receive)
	return p, nil
}

func (p *acceptor) receive() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		if p.over {
			p.mu.Unlock()
			c.Close()
			continue
		}
		p.conns[c] = true
		p.pending.Add(c)
		p.mu.Unlock()
		p.serving.Go(func() {
			p.serve(c)
			p.mu.Lock()
			defer p.mu.Unlock()
			p.pending.Remove(c)
			delete(p.conns, c)
		})
	}
}

func (p *acceptor) serve(c net.Conn) {
	defer c.Close()
	c.SetDeadline(time.Now().Add(traffic.PreambleTimeout))
	b := make([]byte, traffic.PreambleSize)
	if _, err := io.ReadFull(c, b); err != nil {
		return
	}
	if i, known := traffic.ReadPreamble(b, p.tag, p.number+1); !known || i != p.number {
		return
	}
	p.mu.Lock()
	p.pending.Remove(c)
	p.mu.Unlock()
	if _, err := c.Write(traffic.Welcome(p.tag)); err != nil {
		return
	}
	io.Copy(io.Discard, io.LimitReader(c, 1)) // until the guest leaves
}

// end closes the door and sends everybody away.
func (p *acceptor) end() {
	p.listener.Close()
	p.mu.Lock()
	p.over = true
	for c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.serving.Wait()
}
