package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/probe"
)

// Serve is the node half of a watch. It samples from the first message until the session ends, answering
// commands meanwhile. Three goroutines share the work and are joined before it returns: the loop, which
// must never wait for a connection; the sender; and the receiver, which is the caller's own.
func Serve(list []probe.Probe) host.Handler {
	return func(ctx context.Context, session host.Session) error {
		var r Request
		if err := session.Recv(&r); err != nil {
			return err
		}
		s, err := openSampling(ctx, list, r.withDefaults())
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
			loop.Wait() // the loop offers, so it ends first
			close(out.live)
			sender.Wait()
		}()
		if err := out.send(answer{Ready: true}); err != nil {
			return err
		}
		return s.obey(session, &out)
	}
}

// obey carries out commands until there are no more.
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
			s.schedule(c.At)
		case opLive:
			s.setLive(c.EveryNs)
		case opCollect:
			if err := s.answer(c, out); err != nil {
				return err
			}
		default:
			return fmt.Errorf("watch: unknown command %q", c.Op)
		}
	}
}

func (s *sampling) answer(c command, out *outbox) error {
	rest, err := s.collect(c.From, c.To, func(samples record.Samples) error {
		return out.send(answer{ID: c.ID, Samples: &samples})
	})
	if err != nil {
		return err
	}
	return out.send(answer{ID: c.ID, Rest: &rest})
}

// outbox lets two goroutines send, and the loop offer without waiting.
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

// offer leaves a live message for the sender, or drops it when the connection is busy: the next one tells
// more.
func (o *outbox) offer(cores []float64) {
	if len(cores) == 0 {
		return
	}
	select {
	case o.live <- append([]float64(nil), cores...):
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
