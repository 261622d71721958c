package host

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// A line is a connection that outlives the programs at its ends: a guest's port, a serial line. Reading may
// begin in the middle of a frame meant for another program, bytes may be lost or changed on the way, and the
// end of the other program goes unnoticed. So both ends skip everything that is not a whole frame, and send a
// hello with their start time: a hello with a new time ends the sessions of the previous program.

// helloAgain is how long a controller waits for the answer to its hello.
const helloAgain = 250 * time.Millisecond

// ConnectLine is Connect over a line. It waits as long as ctx lives for an answer from an agent, which may
// still be booting. On failure it closes rwc.
//
// If the line loses a frame, its session waits forever: use a deadline for every request.
func ConnectLine(ctx context.Context, rwc io.ReadWriteCloser) (Agent, error) {
	a := newClient(&resync{ReadWriteCloser: rwc})
	// An answer to a previous controller must not be mistaken for one to us.
	a.next = uint32(a.began)
	go a.read()
	stop := context.AfterFunc(ctx, func() { rwc.Close() })
	err := a.sayHello()
	if !stop() {
		err = context.Cause(ctx)
	}

	if err != nil {
		a.Close()
		return nil, fmt.Errorf("wait for the agent: %w", err)
	}

	return a, nil
}

// sayHello sends hellos until one is answered or the connection ends.
func (a *client) sayHello() error {
	b, err := encode(a.began)
	if err != nil {
		return err
	}

	again := time.NewTicker(helloAgain)
	defer again.Stop()
	for {
		if err := a.link.write(frame{frameHello, 0, b}); err != nil {
			return fmt.Errorf("%w: %w", ErrUnreachable, err)
		}

		select {
		case <-a.met:
			return nil
		case <-a.done:
			return a.err
		case <-again.C:
		}
	}
}

// heardHello notes a new agent at the other end. The first one serves requests sent before it started; later
// ones do not know the sessions that the previous one was serving. Sessions opened in between end as well:
// their owners close them, which makes the new agent drop them.
func (a *client) heardHello(f frame) {
	var began int64
	if json.Unmarshal(f.payload, &began) != nil || began == 0 {
		return
	}

	a.mu.Lock()
	before := a.node
	a.node = began
	var lost map[uint32]*session
	if before != 0 && before != began {
		lost = a.sessions
		a.sessions = map[uint32]*session{}
	}

	a.mu.Unlock()
	if before == 0 {
		close(a.met)
	}

	for _, s := range lost {
		s.in.finish(fmt.Errorf("agent: %w: it ended, and another was started", ErrUnreachable), false)
	}
}

// ServeLine is Serve over a line. The sessions of a controller end when another one sends a hello.
func ServeLine(ctx context.Context, rwc io.ReadWriteCloser, handlers map[string]Handler) error {
	s := newServer(&resync{ReadWriteCloser: rwc}, verbs(handlers))
	s.sayHello()
	return s.serve(ctx)
}

func (s *server) sayHello() {
	b, _ := encode(s.began)
	s.link.write(frame{frameHello, 0, b}) // the reader notices a dead link
}

// heardHello answers a controller.
func (s *server) heardHello(f frame) {
	var began int64
	if json.Unmarshal(f.payload, &began) != nil || began == 0 {
		return
	}

	if s.controller != 0 && s.controller != began {
		s.abandonAll()
	}

	s.controller = began
	s.sayHello()
}
