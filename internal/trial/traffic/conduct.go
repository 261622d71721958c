package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Every wait is limited. Patience is the time for which a node waits for its peer. SetUp is the time for
// which the controller waits for a node. It is longer, so that the node can still report what it was
// waiting for. overtime is the time after the planned end of the load in which nodes may send their
// results.
const (
	Patience = 10 * time.Second
	SetUp    = 15 * time.Second
	overtime = 15 * time.Second
)

// maxResult limits the size of the result of one endpoint, in bytes. The result of probes for a whole day is
// half that size.
const maxResult = 1 << 30

// Request is the first message to a node. The opener connects to Peer:Port. The listener binds Addr:Port;
// if Port is 0, the kernel chooses the port.
type Request struct {
	Check  bool       `json:"check,omitempty"` // only check whether the load is possible
	Side   string     `json:"side"`            // "near" or "far"
	Listen bool       `json:"listen"`
	Addr   netip.Addr `json:"addr"`
	Peer   netip.Addr `json:"peer"`
	Beside []Path     `json:"beside,omitempty"` // paths in addition to the path from Addr to Peer
	Port   int        `json:"port"`
	// From is the only address from which a listener accepts datagrams. If From is the zero value, the
	// listener accepts every address that returns its cookie.
	From netip.Addr  `json:"from,omitzero"`
	CPUs []int       `json:"cpus,omitempty"`
	Load record.Load `json:"load"`

	Survey   bool   `json:"survey,omitempty"`   // only report how frames can reach the peer
	Neighbor string `json:"neighbor,omitempty"` // device that accepts frames; the node is not an endpoint
}

// Path holds the addresses of a path between the endpoints: this endpoint's and the peer's.
type Path struct {
	Addr netip.Addr `json:"addr"`
	Peer netip.Addr `json:"peer"`
}

// Paths lists all paths between the endpoints. The first path leads from Addr to Peer.
func (q Request) Paths() []Path {
	return append([]Path{{q.Addr, q.Peer}}, q.Beside...)
}

// Hears reports whether the listener accepts datagrams from an address.
func (q Request) Hears(from netip.Addr) bool {
	return !q.From.IsValid() || from.Unmap() == q.From.Unmap()
}

// PathOf returns the path of a flow.
func (q Request) PathOf(k FlowKey) Path {
	paths := q.Paths()
	return paths[(k.Stream-1)%len(paths)]
}

// Message is a message from a node. Exactly one field is set.
type Message struct {
	Listening int             `json:"listening,omitempty"` // port on which the node listens
	Ready     bool            `json:"ready,omitempty"`
	Progress  *Progress       `json:"progress,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"` // part of the result, which may have several parts
}

// endpoint is one end of the load as seen by the controller. Its reader passes on messages about the
// endpoint's state through the field said. The fields result and err belong to the reader until done is
// closed.
type endpoint struct {
	side    string
	end     End
	session host.Session
	said    chan Message
	done    chan struct{}
	result  []json.RawMessage
	err     error
}

// conduct holds the state of an activity in progress.
type conduct struct {
	verb      string
	load      record.Load
	conductor Conductor
	cancel    context.CancelCauseFunc
	endpoints [2]*endpoint

	mu   sync.Mutex
	last map[string]Progress
}

// Conduct is the controller side of all activities. It starts the listener, then the opener, waits until both
// are ready, sends them the timeline, and collects the parts of each result. The near endpoint has index 0. A
// third party's endpoint returns no result. The other endpoint connects to the load's port there.
func Conduct(parent context.Context, name string, load record.Load, c Conductor,
	near, far End) (results [2][]json.RawMessage, err error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	r := &conduct{
		verb:      host.Verb(host.FamilyTraffic, name),
		load:      load,
		conductor: c,
		cancel:    cancel,
		last:      map[string]Progress{},
	}
	for i, end := range []End{near, far} {
		r.endpoints[i] = &endpoint{
			side: sides[i],
			end:  end,
			said: make(chan Message, 2),
			done: make(chan struct{}),
		}
	}
	defer func() {
		for _, p := range r.endpoints {
			if p.session != nil {
				p.session.Close()
				<-p.done
			}
		}
	}()
	if err := r.run(ctx); err != nil {
		if parent.Err() != nil {
			return results, parent.Err()
		}

		cause := context.Cause(ctx)
		if cause != nil {
			err = cause // report the first failure, because it made us abort the other end
		}

		return results, err
	}

	for i, p := range r.endpoints {
		results[i] = p.result
	}

	return results, nil
}

// sides lists the names of the endpoints in order.
var sides = [2]string{"near", "far"}

func (r *conduct) run(ctx context.Context) error {
	opener := r.endpoints[0]
	listener := r.endpoints[1]
	port := r.load.Port
	if r.load.Opener == "far" && listener.end.ThirdParty == "" {
		opener, listener = listener, opener
	}

	ours := []*endpoint{opener}
	if listener.end.ThirdParty == "" {
		ours = append(ours, listener)
		if err := r.open(ctx, listener, opener.end, true, port); err != nil {
			return err
		}

		m, err := await(ctx, listener, "listening")
		if err != nil {
			return err
		}

		port = m.Listening
	}

	if err := r.open(ctx, opener, listener.end, false, port); err != nil {
		return err
	}

	for _, p := range ours {
		if _, err := await(ctx, p, "ready"); err != nil {
			return err
		}
	}

	w, err := r.conductor.Ready(ctx)
	if err != nil {
		return err
	}

	for _, p := range ours {
		if err := p.session.Send(shiftWindow(w, p.end.Offset)); err != nil {
			return r.fault(p, fmt.Errorf("send the timeline: %w", err))
		}

		if err := p.session.Finish(); err != nil {
			return r.fault(p, fmt.Errorf("finish: %w", err))
		}
	}

	limit := time.Duration(w.Stop-w.Begin) + overtime
	for _, p := range ours {
		select {
		case <-p.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(limit):
			return r.fault(p, fmt.Errorf("no result within %v", limit))
		}

		if p.err != nil {
			return r.fault(p, p.err)
		}
	}

	return nil
}

func (r *conduct) open(ctx context.Context, p *endpoint, other End, listen bool, port int) error {
	octx, cancel := context.WithTimeout(ctx, SetUp)
	defer cancel()
	q := Request{
		Side:   p.side,
		Listen: listen,
		Addr:   p.end.Addr,
		Peer:   other.Target,
		Port:   port,
		CPUs:   p.end.CPUs,
		Load:   r.load,
	}
	if listen {
		q.From = p.end.Hears
	}

	for i, a := range p.end.Beside {
		q.Beside = append(q.Beside, Path{a, other.Beside[i]})
	}

	s, err := p.end.Agent.Open(octx, r.verb, q)
	if err != nil {
		return fmt.Errorf("open %s at %s end: %w", r.verb, p.side, err)
	}

	p.session = s
	// Close the session if ctx is cancelled, because nothing else ends a blocked Recv.
	stop := context.AfterFunc(ctx, func() { s.Close() })
	go func() {
		defer close(p.done)
		defer stop()
		p.err = r.read(p)
		if p.err != nil {
			r.cancel(r.fault(p, p.err))
		}
	}()
	return nil
}

// read receives messages of an endpoint until the last one.
func (r *conduct) read(p *endpoint) error {
	for size := 0; ; {
		var m Message
		err := p.session.Recv(&m)
		if err == io.EOF {
			if p.result == nil {
				return errors.New("ended without a result")
			}
			return nil
		}

		if err != nil {
			return err
		}

		switch {
		case m.Listening > 0, m.Ready:
			select {
			case p.said <- m:
			default:
			}
		case m.Progress != nil:
			r.progress(p, *m.Progress)
		case m.Result != nil:
			if size += len(m.Result); size > maxResult {
				return fmt.Errorf("its result exceeds %d MiB", maxResult>>20)
			}

			p.result = append(p.result, m.Result)
		}
	}
}

// progress reports the sum of the data that both endpoints received.
func (r *conduct) progress(p *endpoint, one Progress) {
	r.mu.Lock()
	r.last[p.side] = one
	sum := Progress{At: one.At - p.end.Offset, RTT: one.RTT}
	for _, l := range r.last {
		sum.ReceivedBps += l.ReceivedBps
		sum.ReceivedPPS += l.ReceivedPPS
	}

	r.mu.Unlock()
	r.conductor.Progress(sum)
}

func (r *conduct) fault(p *endpoint, err error) error {
	return fmt.Errorf("%s at %s end (%s): %w", r.verb, p.side, p.end.Node, err)
}

// await returns the next message about an endpoint's state.
func await(ctx context.Context, p *endpoint, state string) (Message, error) {
	select {
	case m := <-p.said:
		return m, nil
	case <-ctx.Done():
		return Message{}, context.Cause(ctx)
	case <-time.After(SetUp):
		return Message{}, fmt.Errorf("wait for %s end (%s) to be %s: nothing within %v", p.side, p.end.Node,
			state, SetUp)
	case <-p.done:
		if p.err == nil {
			return Message{}, fmt.Errorf("wait for %s end (%s) to be %s: it ended", p.side, p.end.Node, state)
		}
		return Message{}, fmt.Errorf("%s end (%s): %w", p.side, p.end.Node, p.err)
	}
}

// NewWindow returns the times of a load that begins at begin. drain limits the time to wait for packets at
// the end.
func NewWindow(begin int64, warmup, duration, drain time.Duration) record.Window {
	start := begin + int64(warmup)
	end := start + int64(duration)
	return record.Window{Begin: begin, Start: start, End: end, Stop: end + int64(drain)}
}

func shiftWindow(w record.Window, d int64) record.Window {
	return record.Window{Begin: w.Begin + d, Start: w.Start + d, End: w.End + d, Stop: w.Stop + d}
}
