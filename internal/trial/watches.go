package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/watch"
)

// liveEvery is the interval at which the load of the host's cores is reported for the live view.
const liveEvery = 250 * time.Millisecond

// watches holds the watches of a lab. Probes with host scope run on the host, and probes with node scope on
// all other nodes. Guests and separate machines run all probes. If a node has no agent, its driver samples
// it, if possible.
type watches struct {
	lab      *lab.Lab
	watchers map[string]watcher
	shown    string            // node whose cores the live view shows
	missing  map[string]string // reasons why nodes are not watched, by node
}

// watcher samples the telemetry of one node.
type watcher interface {
	Schedule(at ...int64) error
	Live() []float64
	Collect(ctx context.Context, from, to int64) (record.NodeData, error)
	Close() error
}

// agentlessEvery is the interval of the samples of an agentless node. Each sample makes the node run one
// or two commands.
const agentlessEvery = time.Second

// agentless samples a node through its driver, at fixed intervals. It takes no additional samples at the
// start and end of a window.
type agentless struct {
	watch driver.Watch
	whole bool         // the node does not share its CPUs
	stop  func()       // stops sending keepalives
	gone  *atomic.Bool // the sampling process has ended
}

// drive sends keepalives to the sampling process of a node until the watch is closed.
func drive(ctx context.Context, by driver.Watch, whole bool) agentless {
	alive, stop := context.WithCancel(context.WithoutCancel(ctx))
	var keeping sync.WaitGroup
	keeping.Go(func() {
		for host.Pause(alive, driver.Silence/4) == nil && by.Keep(alive) == nil {
		}
	})
	return agentless{by, whole, func() { stop(); keeping.Wait() }, new(atomic.Bool)}
}

func (agentless) Schedule(...int64) error { return nil }
func (agentless) Live() []float64         { return nil }

func (d agentless) Collect(ctx context.Context, from, to int64) (record.NodeData, error) {
	data, err := d.watch.Collect(ctx, from, to)
	if err != nil {
		d.gone.Store(true)
	}

	if !d.whole {
		data.Samples = slices.DeleteFunc(data.Samples, func(s record.Samples) bool {
			return s.Scope == record.ScopeHost
		})
	}

	return data, err
}

func (d agentless) Close() error {
	d.stop()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return d.watch.Close(ctx)
}

func newWatches(l *lab.Lab) *watches {
	return &watches{lab: l, watchers: map[string]watcher{}, shown: lab.HostNode, missing: map[string]string{}}
}

// openWatch starts the probes on all nodes and returns when they are running, so that no probe starts
// under load.
func openWatch(ctx context.Context, l *lab.Lab, probes []probe.Probe) (*watches, error) {
	w := newWatches(l)
	for _, name := range l.Nodes() {
		n, err := l.Node(ctx, name)
		if err == nil {
			err = w.open(ctx, n, probes)
		}

		if err != nil {
			return nil, errors.Join(err, w.Close())
		}
	}
	return w, nil
}

// open starts the probes on a node, through its agent or driver.
func (w *watches) open(ctx context.Context, n *lab.Node, probes []probe.Probe) error {
	name := n.Name
	if d, ok := n.Driver.(driver.Sampling); ok && n.HasDriver() {
		p, err := d.Watch(ctx, n.Host, agentlessEvery)
		if err == nil {
			w.watchers[name] = drive(ctx, p, n.Facts.OwnCPUs())
		}
		return err
	}

	if !n.HasAgent() {
		w.missing[name] = cmp.Or(n.Describe().Unreachable, "the node has no agent")
		return nil
	}

	options := watch.Options{Options: probe.Options{Own: []int{os.Getpid()}}}
	if w.lab.Holder > 0 {
		options.Own = append(options.Own, w.lab.Holder)
	}

	watched := probe.ByScope(probes, record.ScopeNode)
	switch {
	case name == lab.HostNode:
		watched = probe.ByScope(probes, record.ScopeHost)
		options.Live = liveEvery
	case n.Facts.Guest(): // all probes, because nothing else uses the guest's cores and memory
		watched = probes
		options.Own = nil
		options.Trace = n.Trace
	case n.Facts.OwnMachine(): // all probes, including those for other programs, which may run there
		watched = probes
		if n.Facts.Clock != record.ClockSame {
			options.Own = nil // our process id belongs to another process on that machine
		}

		if name == w.lab.Topology.Near {
			options.Live, w.shown = liveEvery, name
		}
	}

	p, err := watch.Start(ctx, n.Agent, name, probe.Names(watched), options)
	if err == nil {
		w.watchers[name] = p
	}

	return err
}

// gone reports whether a node's sampling process must be restarted, because it was killed, or ended while
// this machine slept.
func (w *watches) gone() bool {
	for _, p := range w.watchers {
		if d, ok := p.(agentless); ok && d.gone.Load() {
			return true
		}
	}
	return false
}

// schedule makes all nodes sample at the start and end of the window.
func (w *watches) schedule(win record.Window) error {
	if w == nil {
		return nil
	}

	for _, p := range w.watchers {
		if err := p.Schedule(win.Start, win.End); err != nil {
			return err
		}
	}
	return nil
}

func (w *watches) cores() []float64 {
	if w == nil || w.watchers[w.shown] == nil {
		return nil
	}
	return w.watchers[w.shown].Live()
}

// collect fetches the samples of all nodes between two times.
func (w *watches) collect(ctx context.Context, from, to int64) (map[string]record.NodeData, error) {
	if w == nil {
		return nil, nil
	}

	var mu sync.Mutex
	var all sync.WaitGroup
	out := map[string]record.NodeData{}
	var failed error
	for name, p := range w.watchers {
		all.Go(func() {
			d, err := p.Collect(ctx, from, to)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("collect from %s: %w", name, err))
				return
			}

			w.lab.NamePorts(name, d)
			dropDocs(d)
			out[name] = d
		})
	}

	all.Wait()
	for name, why := range w.missing {
		out[name] = record.NodeData{Samples: []record.Samples{{
			Probe:       "all",
			Scope:       record.ScopeNode,
			Unavailable: why,
		}}}
	}

	return out, failed
}

// dropDocs removes the docs of metrics, so that trials do not store them. docs/reference/telemetry.md
// contains them.
func dropDocs(d record.NodeData) {
	for i := range d.Samples {
		s := &d.Samples[i]
		s.Metrics = slices.Clone(s.Metrics)
		for j := range s.Metrics {
			s.Metrics[j].Doc = ""
		}
	}
}

func (w *watches) Close() error {
	if w == nil {
		return nil
	}

	var err error
	for _, p := range w.watchers {
		err = errors.Join(err, p.Close())
	}

	return err
}
