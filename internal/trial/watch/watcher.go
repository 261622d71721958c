package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Options holds the options of a watch. Zero values mean the defaults.
type Options struct {
	Fast time.Duration // default 100 ms
	Slow time.Duration // default 1 s
	Live time.Duration // interval of live messages; 0 means none
	probe.Options
}

// Watcher is the controller side of a watch on one node. Schedule, Live and Collect are safe for
// concurrent use. Times are the controller's CLOCK_MONOTONIC in ns.
type Watcher struct {
	node    string
	agent   host.Agent
	session host.Session
	reader  sync.WaitGroup

	mu      sync.Mutex // also keeps messages in order
	clock   clockReading
	cores   []float64
	ended   error // reason why the reader has stopped
	next    int
	waiting map[int]*collection
}

// clockReading relates the clocks: node = controller + offset ± bound.
type clockReading struct{ offset, bound int64 }

// collection holds the answers of a collection that is being received.
type collection struct {
	data record.NodeData
	size int           // size of the samples in bytes
	done chan struct{} // closed when data is complete or the session has ended
	err  error
}

// Start starts the named probes on the node and returns when they are running. It returns an error if
// there is no session or the node refuses the request. Probes that are unavailable on the node yield
// samples with the reason.
func Start(ctx context.Context, agent host.Agent, node string, probes []string, opts Options) (*Watcher,
	error) {
	w := &Watcher{node: node, agent: agent, waiting: map[int]*collection{}}
	if _, _, err := w.sync(ctx); err != nil {
		return nil, err
	}

	session, err := agent.Open(ctx, Verb, Request{
		Probes:  probes,
		FastNs:  int64(opts.Fast),
		SlowNs:  int64(opts.Slow),
		Options: opts.Options,
	})
	if err != nil {
		return nil, fmt.Errorf("watch node %s: %w", node, err)
	}

	w.session = session
	if err := host.Await(ctx, session, &answer{}); err != nil {
		session.Close()
		return nil, fmt.Errorf("watch node %s: %w", node, noEOF(err))
	}

	w.reader.Go(w.read)
	if opts.Live > 0 {
		if err := w.send(command{Op: opLive, EveryNs: int64(opts.Live)}); err != nil {
			w.Close()
			return nil, err
		}
	}

	return w, nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (w *Watcher) send(c command) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended != nil {
		return w.ended
	}

	if err := w.session.Send(c); err != nil {
		return fmt.Errorf("watch node %s: send %s: %w", w.node, c.Op, err)
	}

	return nil
}

func (w *Watcher) read() {
	for {
		var a answer
		err := w.session.Recv(&a)
		w.mu.Lock()
		if err != nil {
			w.ended = fmt.Errorf("watch node %s: %w", w.node, noEOF(err))
			for _, c := range w.waiting {
				c.err = w.ended
				close(c.done)
			}

			clear(w.waiting)
			w.mu.Unlock()
			return
		}

		w.take(a)
		w.mu.Unlock()
	}
}

func (w *Watcher) take(a answer) {
	if len(a.Live) > 0 {
		w.cores = a.Live
	}

	c := w.waiting[a.ID]
	if c == nil {
		return // the collection was abandoned
	}

	if a.Samples != nil {
		c.size += sizeOf(a.Samples)
		c.data.Samples = append(c.data.Samples, *a.Samples)
	}

	if a.Rest != nil {
		c.data.Cost = a.Rest.Cost
		c.data.Log = a.Rest.Log
		c.data.Stalls = a.Rest.Stalls
	}

	if c.size > maxCollected {
		c.data = record.NodeData{}
		c.err = fmt.Errorf("collect samples of node %s: they have more than %d MiB", w.node,
			maxCollected>>20)
	}

	if c.err != nil || a.Rest != nil {
		close(c.done)
		delete(w.waiting, a.ID)
	}
}

// maxCollected limits the data of one collection, in bytes. It is far more than a node keeps, because
// columns that appear and disappear leave gaps.
const maxCollected = 16 * 8 * keptValues

// sizeOf returns the approximate size of samples in bytes.
func sizeOf(s *record.Samples) int {
	n := 256
	t := s.Table
	if t != nil {
		n += 8 * len(t.T) * (len(t.Names) + 1)
		for _, name := range t.Names {
			n += len(name) + 64
		}
	}

	for _, m := range s.Metrics {
		n += len(m.Name) + len(m.Doc) + 64
	}

	return n
}

// sync relates the clocks again. It returns the previous and the new relation.
func (w *Watcher) sync(ctx context.Context) (before, after clockReading, err error) {
	offset, bound, err := w.agent.Clock(ctx)
	if err != nil {
		return before, after, fmt.Errorf("relate clock of node %s: %w", w.node, err)
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	before = w.clock
	w.clock = clockReading{offset, bound}
	return before, w.clock, nil
}

// Schedule makes all probes sample at the given times, such as the start and end of a window, in addition
// to their intervals.
func (w *Watcher) Schedule(at ...int64) error {
	w.mu.Lock()
	offset := w.clock.offset
	w.mu.Unlock()
	for i := range at {
		at[i] += offset
	}

	return w.send(command{Op: opSchedule, At: at})
}

// Live returns the latest busy share (0 to 1) of each core, or nil before the first report.
func (w *Watcher) Live() []float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.cores)
}

// Collect fetches the samples between from and to, and the nearest samples before and after. The node
// keeps samples for at most 20 minutes, and none from before the start of the previous collection. Clock
// holds the relation of the clocks at Start or the previous Collect, and the current relation. Times are
// shifted by the mean offset.
func (w *Watcher) Collect(ctx context.Context, from, to int64) (record.NodeData, error) {
	before, after, err := w.sync(ctx)
	if err != nil {
		return record.NodeData{}, err
	}

	offset := before.offset + (after.offset-before.offset)/2
	c := &collection{done: make(chan struct{})}
	w.mu.Lock()
	w.next++
	id := w.next
	w.waiting[id] = c
	w.mu.Unlock()
	if err := w.send(command{Op: opCollect, ID: id, From: from + offset, To: to + offset}); err != nil {
		w.abandon(id)
		return record.NodeData{}, err
	}

	select {
	case <-c.done:
	case <-ctx.Done():
		w.abandon(id)
		return record.NodeData{}, fmt.Errorf("collect samples of node %s: %w", w.node, context.Cause(ctx))
	}

	if c.err != nil {
		return record.NodeData{}, c.err
	}

	shift(&c.data, -offset)
	c.data.Clock = record.Clock{
		OffsetBefore: before.offset,
		BoundBefore:  before.bound,
		OffsetAfter:  after.offset,
		BoundAfter:   after.bound,
	}
	return c.data, nil
}

func (w *Watcher) abandon(id int) {
	w.mu.Lock()
	delete(w.waiting, id)
	w.mu.Unlock()
}

func shift(d *record.NodeData, by int64) {
	for i := range d.Samples {
		d.Samples[i].Table.Shift(by)
	}

	for i := range d.Log {
		d.Log[i].At += by
	}

	for i := range d.Stalls {
		d.Stalls[i].At += by
	}
}

// Close ends the watch. The node stops sampling.
func (w *Watcher) Close() error {
	err := w.session.Close()
	w.reader.Wait()
	return err
}
