package responsiveness

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// maxForeign is the maximum number of foreign connections that are open at once.
const maxForeign = 64

// requester sends the requests in a window. It stops one second before the end of the window, so that each
// request can be answered under load. If a quarter of the window is shorter than a second, it stops a quarter
// of the window before the end.
type requester struct {
	request traffic.Request
	flows   []*requestFlow
	start   int64
	until   int64
	cancel  context.CancelFunc
	stop    atomic.Bool
	busy    sync.WaitGroup
	foreign chan struct{} // one token per open connection

	mu      sync.Mutex
	seen    record.Responsiveness
	pending map[*requestFlow]bool // connections on which a request has not been answered
}

func newRequester(q traffic.Request, flows []traffic.Flow) *requester {
	r := &requester{
		request: q,
		foreign: make(chan struct{}, maxForeign),
		cancel:  func() {},
		pending: map[*requestFlow]bool{},
		seen: record.Responsiveness{
			ForeignAt: []int64{},
			Connect:   []int64{},
			Exchange:  []int64{},
			LoadedAt:  []int64{},
			Loaded:    []int64{},
		},
	}
	for _, f := range flows {
		f := f.(*requestFlow)
		f.answered = func(id uint64) { r.answer(f, id) }
		r.flows = append(r.flows, f)
	}
	return r
}

func (r *requester) begin(ctx context.Context, w record.Window) {
	r.start, r.until = w.Start, w.End-min(int64(time.Second), (w.End-w.Start)/4)
	ctx, r.cancel = context.WithCancel(ctx)
	r.busy.Go(func() { r.each(func(int) { r.goForeign(ctx) }, 0) })
	r.busy.Go(func() { r.each(r.askLoaded, requestInterval/2) })
}

// finish aborts unanswered requests.
func (r *requester) finish() {
	r.stop.Store(true)
	r.cancel()
	r.busy.Wait()
}

// each calls the function do once per interval, and passes it the number of the call.
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

// goForeign makes a foreign request on a new connection. It does not wait for the response.
func (r *requester) goForeign(ctx context.Context) {
	select {
	case r.foreign <- struct{}{}:
	default: // too many requests are unanswered; count this one as unanswered, too
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

// visit makes one foreign request. At the end, it resets the connection, so that neither end keeps the
// connection in TIME_WAIT.
func (r *requester) visit(ctx context.Context, at int64) (connect, exchange int64) {
	c, err := r.request.Dial(ctx, traffic.FlowKey{Stream: 1})
	if err != nil {
		return -1, -1
	}

	connected := traffic.Monotonic()
	defer c.Close()
	c.(*net.TCPConn).SetLinger(0)
	asked := traffic.Monotonic()
	if traffic.Identify(ctx, c, r.request.Load.Tag, len(r.flows)) != nil {
		return connected - at, -1
	}

	return connected - at, traffic.Monotonic() - asked
}

// askLoaded sends a request on the next connection on which no request is unanswered.
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

// answering answers requests of other programs at the listener during the load.
type answering struct {
	*traffic.Acceptor
	cancel context.CancelFunc
}

// answerForeign listens for foreign connections on the flows' addresses. Their preamble contains the number
// that follows the numbers of the flows.
func answerForeign(ctx context.Context, q traffic.Request, port, number int) (*answering, error) {
	q.Port = port
	listeners, _, err := traffic.ListenTCP(ctx, q)
	if err != nil {
		traffic.CloseListeners(listeners)
		return nil, err
	}

	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	return &answering{
		cancel: cancel,
		Acceptor: traffic.Accept(listeners, q.Load.Tag, number+1, 2*maxForeign,
			func(i int, c *net.TCPConn) {
				defer c.Close()
				defer context.AfterFunc(ctx, func() { c.Close() })()
				if i != number {
					return
				}

				if _, err := c.Write(traffic.Welcome(q.Load.Tag)); err == nil {
					io.Copy(io.Discard, io.LimitReader(c, 1)) // wait until the client closes
				}
			}),
	}, nil
}

// close closes the listeners and all connections.
func (a *answering) close() {
	a.cancel()
	a.Acceptor.Close()
}
