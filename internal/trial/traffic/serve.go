package traffic

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Running is the node side of an activity after it has connected.
type Running interface {
	// Run executes the timeline and returns the result. A result that grows with the length of the load
	// consists of several parts, because the size of a message is limited.
	Run(ctx context.Context, w record.Window, say func(Progress) error) (parts []any, err error)
	Close()
}

// Part is a node's part in an activity: the request, and the callback for a listener.
type Part struct {
	Request
	// Listening reports a listener's port to the controller. It must be called before the listener waits for
	// the opener.
	Listening func(port int) error
}

// Connector prepares a node for an activity.
type Connector func(ctx context.Context, q Part) (Running, error)

// Endpoints returns a Connector that uses connect to prepare an Endpoint.
func Endpoints(connect func(ctx context.Context, l *Endpoint) error) Connector {
	return func(ctx context.Context, q Part) (Running, error) {
		// Check the load first, because a packet size without room for the header would cause a panic in a
		// worker, which ends the program.
		a := CheckLoad(q.Load)
		if a.State != check.Yes {
			return nil, fmt.Errorf("load: %s", a.Reason)
		}

		l := &Endpoint{Part: q, Keys: FlowsOf(q.Load), Details: map[string]string{}}
		if err := connect(ctx, l); err != nil {
			l.Close()
			return nil, err
		}

		return l, nil
	}
}

// LetGo ends a session in which a node maintains a setting, and waits until the node has undone the setting.
// If the node does not answer, LetGo returns after the time within.
func LetGo(s host.Session, within time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	s.Finish()
	for host.Await(ctx, s, nil) == nil {
	}

	s.Close()
}

// Serve is the node side of all activities. It answers a check, or it connects, waits for the timeline,
// executes the timeline and sends the result.
func Serve(ctx context.Context, s host.Session, checked func(Request) check.Answer, connect Connector) error {
	var q Request
	if err := s.Recv(&q); err != nil {
		return err
	}
	return ServeRequest(ctx, s, q, checked, connect)
}

// ServeRequest is like Serve, for a request that was already read.
func ServeRequest(ctx context.Context, s host.Session, q Request, checked func(Request) check.Answer,
	connect Connector) error {
	if err := q.check(); err != nil {
		return err
	}

	if q.Check {
		return s.Send(checked(q))
	}

	if err := PinProcess(q.CPUs); err != nil { // child processes inherit the cores
		return err
	}

	r, err := connect(ctx, Part{q, func(port int) error { return s.Send(Message{Listening: port}) }})
	if err != nil {
		return err
	}
	defer r.Close()
	if err := s.Send(Message{Ready: true}); err != nil {
		return err
	}

	var w record.Window
	if err := s.Recv(&w); err != nil {
		return err
	}

	if err := checkWindow(w, q.Load); err != nil {
		return err
	}

	parts, err := r.Run(ctx, w, func(p Progress) error { return s.Send(Message{Progress: &p}) })
	if err != nil {
		return err
	}

	for _, part := range parts {
		b, err := json.Marshal(part)
		if err != nil {
			return fmt.Errorf("encode the result: %w", err)
		}

		if err := s.Send(Message{Result: b}); err != nil {
			return err
		}
	}

	return nil
}
