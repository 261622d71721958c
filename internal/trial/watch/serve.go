// Package watch keeps a node's probes running while traffic flows: one resident loop on the node reads every
// source when it is due and keeps the samples; the controller sets the window's edges and fetches the rest
// afterwards. It draws no conclusion.
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

// Verb opens a watch.
var Verb = host.Verb(host.FamilyProbe, "watch")

// The default interval of each pace.
const (
	defaultFastNs = 100e6
	defaultSlowNs = 1e9
)

// Request opens a watch: the node samples from then on until the session ends. Zero intervals mean 10
// Hz and 1 Hz.
type Request struct {
	Probes []string `json:"probes"`
	FastNs int64    `json:"fast_ns,omitempty"`
	SlowNs int64    `json:"slow_ns,omitempty"`
	probe.Options
}

// Bounds on a request, which may come from somebody else's controller. Intervals outside are moved to the
// nearest bound.
const (
	minNs     = 1e6
	maxNs     = 3600e9
	maxMarks  = 10_000 // pending times for reading everything
	maxProbes = 100
)

func (r Request) withDefaults() Request {
	within := func(ns, usual int64) int64 { return min(max(cmp.Or(max(ns, 0), usual), minNs), maxNs) }
	r.FastNs, r.SlowNs = within(r.FastNs, defaultFastNs), within(r.SlowNs, defaultSlowNs)
	return r
}

// command is a controller's message in a watch; its times are the node's.
type command struct {
	Op      string  `json:"op"`
	ID      int     `json:"id,omitempty"`       // of a collect, repeated in its answers
	At      []int64 `json:"at,omitempty"`       // schedule
	EveryNs int64   `json:"every_ns,omitempty"` // live; 0 = stop
	From    int64   `json:"from,omitempty"`     // collect
	To      int64   `json:"to,omitempty"`
}

const (
	opSchedule = "schedule"
	opLive     = "live"
	opCollect  = "collect"
)

// answer is a node's message in a watch: a report that the watch is resident, each core's load, or a part of
// a collection. A collection consists of one answer per probe, so that no frame gets large, and a last one
// with the rest.
type answer struct {
	Ready   bool             `json:"ready,omitempty"`
	Live    []float64        `json:"live,omitempty"`
	ID      int              `json:"id,omitempty"`
	Samples *record.Samples  `json:"samples,omitempty"`
	Rest    *record.NodeData `json:"rest,omitempty"`
}

// Handlers returns the node sides of the family, by verb.
func Handlers(root probe.Root) map[string]host.Handler {
	return map[string]host.Handler{
		Verb:                  Serve(probe.All(root)),
		probe.VerbEnvironment: probe.ServeEnvironment(root),
	}
}

// Serve is the node side of a watch. It samples from the first message until the session ends, answering
// commands meanwhile. Three goroutines share the work and are joined before it returns: the loop, which
// must never wait for a connection; the sender; and the receiver, which is the caller's own.
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
			loop.Wait() // the loop makes offers, so it ends first
			close(out.live)
			sender.Wait()
		}()
		if err := out.send(answer{Ready: true}); err != nil {
			return err
		}

		return s.obey(session, &out)
	}
}

// obey executes commands until there are no more.
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

// outbox lets two goroutines send, and the loop make offers without waiting.
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

// offer leaves a live message for the sender, or drops it if the connection is busy, since the next one is
// newer anyway.
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
			for range o.live { // the receiver ends the session
			}
			return
		}
	}
}
