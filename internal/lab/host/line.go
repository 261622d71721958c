package host

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// A line is a connection that outlives the programs at its ends, such as a guest's virtio port or a serial
// line. A program may start reading in the middle of a frame, bytes may be lost or changed, and nothing
// signals that the program at the other end has exited. Therefore, both ends skip bytes until a whole valid
// frame arrives, and send a hello that contains their start time. A hello with a new start time ends the
// sessions with the previous program.

// helloAgain is the interval at which a controller repeats its hello until an agent answers.
const helloAgain = 250 * time.Millisecond

// ConnectLine is like Connect, but for a line. It waits for an agent, which may still be booting, until ctx
// ends. If it fails, it closes rwc.
//
// A session waits forever if one of its frames is lost on the line, so set a deadline for every request.
func ConnectLine(ctx context.Context, rwc io.ReadWriteCloser) (Agent, error) {
	a := newClient(&resync{ReadWriteCloser: rwc})
	// Use session numbers that differ from those of a previous controller, because late answers to that
	// controller may still arrive.
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

// sayHello repeats a hello until an agent answers or the connection ends.
func (a *client) sayHello() error {
	again := time.NewTicker(helloAgain)
	defer again.Stop()
	for {
		if err := a.link.write(hello(a.began)); err != nil {
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

// hello returns the frame that contains the start time of this program.
func hello(began int64) frame {
	b, _ := encode(began) // never returns an error
	return frame{frameHello, 0, b}
}

// helloOf returns the start time in a hello, or 0 if the frame is malformed.
func helloOf(f frame) (began int64) {
	_ = json.Unmarshal(f.payload, &began)
	return began
}

// heardHello records the start time of the agent at the other end. If another agent ran there before,
// heardHello ends all sessions, because the new agent does not know the sessions of the previous one. It ends
// even a session that was opened after the new agent had started; the new agent drops such a session when the
// session's owner closes it. The hello of the first agent ends no session, because that agent has received
// all requests, even those sent before it started.
func (a *client) heardHello(f frame) {
	began := helloOf(f)
	if began == 0 {
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

// ServeLine is like Serve, but for a line. The hello of a new controller ends the sessions of the previous
// one.
func ServeLine(ctx context.Context, rwc io.ReadWriteCloser, handlers map[string]Handler) error {
	s := newServer(&resync{ReadWriteCloser: rwc}, verbs(handlers))
	s.sayHello()
	return s.serve(ctx)
}

func (s *server) sayHello() {
	s.link.write(hello(s.began)) // error ignored: the reader reports a broken link
}

// heardHello replies to a controller's hello. If the controller is new, heardHello first abandons the
// sessions of the previous one.
func (s *server) heardHello(f frame) {
	began := helloOf(f)
	if began == 0 {
		return
	}

	if s.controller != 0 && s.controller != began {
		s.abandonAll()
	}

	s.controller = began
	s.sayHello()
}
