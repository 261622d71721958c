// Package watch samples the probes of a node while traffic flows. A loop on the node reads each source
// when it is due and keeps the samples. The controller schedules reads at the start and end of a window,
// and fetches the samples afterwards. The package does not interpret the samples.
package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Verb is the verb that starts a watch.
var Verb = host.Verb(host.FamilyProbe, "watch")

// Default intervals of fast and slow probes, in ns.
const (
	defaultFastNs = 100e6
	defaultSlowNs = 1e9
)

// Request starts a watch. The node samples until the session ends. Intervals of zero mean 100 ms for fast
// probes and 1 s for slow ones.
type Request struct {
	Probes []string `json:"probes"`
	FastNs int64    `json:"fast_ns,omitempty"`
	SlowNs int64    `json:"slow_ns,omitempty"`
	probe.Options
}

// Limits of a request, which may come from another user's controller. An interval outside the limits is
// set to the nearest limit.
const (
	minNs     = 1e6
	maxNs     = 3600e9
	maxMarks  = 10_000 // maximum number of pending marks
	maxProbes = 100
)

func (r Request) withDefaults() Request {
	within := func(ns, usual int64) int64 { return min(max(cmp.Or(max(ns, 0), usual), minNs), maxNs) }
	r.FastNs, r.SlowNs = within(r.FastNs, defaultFastNs), within(r.SlowNs, defaultSlowNs)
	return r
}

// command is a message from the controller. Times are those of the node's clock.
type command struct {
	Op      string  `json:"op"`
	ID      int     `json:"id,omitempty"`       // for opCollect: number that the answers repeat
	At      []int64 `json:"at,omitempty"`       // for opSchedule
	EveryNs int64   `json:"every_ns,omitempty"` // for opLive; 0 means stop
	From    int64   `json:"from,omitempty"`     // for opCollect
	To      int64   `json:"to,omitempty"`
}

const (
	opSchedule = "schedule"
	opLive     = "live"
	opCollect  = "collect"
)

// answer is a message from the node. It reports that the watch has started, contains each core's load, or
// is part of a collection. A collection consists of one answer per probe, so that messages stay small, and
// of a last answer with the other data.
type answer struct {
	Ready   bool             `json:"ready,omitempty"`
	Live    []float64        `json:"live,omitempty"`
	ID      int              `json:"id,omitempty"`
	Samples *record.Samples  `json:"samples,omitempty"`
	Rest    *record.NodeData `json:"rest,omitempty"`
}

// Handlers returns the handlers of all probe verbs.
func Handlers(root probe.Root) map[string]host.Handler {
	return map[string]host.Handler{
		Verb:                  Serve(probe.All(root)),
		probe.VerbEnvironment: probe.ServeEnvironment(root),
	}
}

// Serve returns the handler of a watch. It samples from the first message until the session ends, and
// executes commands. It uses three goroutines, the loop, the sender and the receiver, and waits for them
// before it returns. The loop must never wait for a connection. The receiver is the caller's goroutine.
func Serve(list []probe.Probe) host.Handler {
	return func(ctx context.Context, session host.Session) error {
		var r Request
		if err := session.Recv(&r); err != nil {
			return err
		}

		s, err := openSampling(list, r.withDefaults())
		if err != nil {
			return err
		}
		defer s.close()
		out := outbox{session: session, live: make(chan []float64, 1)}
		s.live = out.offer
		var loop, sender sync.WaitGroup
		loop.Go(s.loop)
		sender.Go(out.deliver)
		defer func() {
			s.stop()
			loop.Wait() // the loop must end first, because it calls offer
			close(out.live)
			sender.Wait()
		}()
		if err := out.send(answer{Ready: true}); err != nil {
			return err
		}

		return s.obey(session, &out)
	}
}

// obey executes commands until the controller has finished.
func (s *sampling) obey(session host.Session, out *outbox) error {
	for {
		var c command
		err := session.Recv(&c)
		if errors.Is(err, io.EOF) {
			return nil
		}

		if err != nil {
			return err
		}

		switch c.Op {
		case opSchedule:
			if err := s.schedule(c.At); err != nil {
				return err
			}
		case opLive:
			s.mu.Lock()
			s.liveEvery = c.EveryNs
			if c.EveryNs > 0 {
				s.liveEvery = min(max(c.EveryNs, minNs), maxNs)
			}

			s.mu.Unlock()
		case opCollect:
			rest, err := s.collect(c.From, c.To, func(samples record.Samples) error {
				return out.send(answer{ID: c.ID, Samples: &samples})
			})
			if err == nil {
				err = out.send(answer{ID: c.ID, Rest: &rest})
			}

			if err != nil {
				return err
			}
		default:
			return fmt.Errorf("watch: unknown command %q", c.Op)
		}
	}
}

// outbox allows two goroutines to send messages, and the loop to offer live messages without waiting.
type outbox struct {
	mu      sync.Mutex
	session host.Session
	live    chan []float64
}

func (o *outbox) send(a answer) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.session.Send(a)
}

// offer queues a live message. If the connection is busy, it drops the message, because the next one will
// be newer anyway.
func (o *outbox) offer(cores []float64) {
	if len(cores) == 0 {
		return
	}

	select {
	case o.live <- slices.Clone(cores):
	default:
	}
}

func (o *outbox) deliver() {
	for cores := range o.live {
		if o.send(answer{Live: cores}) != nil {
			for range o.live { // errors are ignored, because the receiver ends the session
			}
			return
		}
	}
}
