package host

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

// TestReusedSessionEndsTheConnection: a controller that opens a session twice does not leave its first
// handler behind, which nobody could end then.
func TestReusedSessionEndsTheConnection(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	go io.Copy(io.Discard, near)
	served := make(chan error, 1)
	go func() {
		served <- Serve(t.Context(), far, arithmetic)
	}()
	open := appendFrame(nil, frame{frameOpen, 7, []byte(`{"verb":"x/sum"}`)})
	for range 2 {
		_, err := near.Write(open)
		must(t, err)
	}

	select {
	case err := <-served:
		expect.Error(t, "a session that is open", err, "it is open")
	case <-time.After(5 * time.Second):
		t.Error("the node did not end within 5 s: a handler waits for ever")
	}
}

// TestAFaultEndsItsSessionOnly: a handler that panics has its session end with an error, after its undoing.
func TestAFaultEndsItsSessionOnly(t *testing.T) {
	undone := false
	a := Inside(t.Context(), map[string]Handler{"x/fault": Answering(func(_ context.Context,
		n int) ([]byte, error) {
		defer func() { undone = true }()
		return make([]byte, n), nil
	})})
	defer a.Close()
	err := a.Invoke(t.Context(), "x/fault", math.MaxInt, nil)
	expect.Error(t, "the session", err, "x/fault: a fault of the program")
	if !undone {
		t.Error("the handler's undoing was skipped")
	}

	if _, _, err := a.Clock(t.Context()); err != nil {
		t.Errorf("afterwards: %v, want that others are served", err)
	}
}

// TestInboxIsBounded: what nobody reads is not kept without end.
func TestInboxIsBounded(t *testing.T) {
	var all atomic.Int64
	b := newInbox(&all)
	other := newInbox(&all)
	large := make([]byte, maxPayload)
	var err error
	n := 0
	for ; err == nil && n < 100; n++ {
		err = b.put(frame{frameData, 1, large})
	}

	if !errors.Is(err, errFull) || n > 9 {
		t.Fatalf("got %v after %d messages of %d bytes, want that they are too many", err, n, len(large))
	}

	expect.Error(t, "another session of the connection", other.put(frame{frameData, 2, large}), errFull)
	_, err = b.get()
	must(t, err)
	if err := b.put(frame{frameData, 1, large}); err != nil {
		t.Errorf("after one was read: got %v, want that there is room", err)
	}

	b.finish(ErrAbandoned, true)
	if err := other.put(frame{frameData, 2, large}); err != nil || all.Load() != int64(len(large)+frameCost) {
		t.Errorf("after the first ended: got %v and %d bytes, want room", err, all.Load())
	}
}

// TestWhatANodeSaysIsPlain: neither a node's answer nor its error steers the terminal of the controller.
func TestWhatANodeSaysIsPlain(t *testing.T) {
	const nasty = "a\x1b[2Jb\u009b31mc\x7fd\u202ee\rf\ng\x00\\u001bh"
	a := Inside(t.Context(), map[string]Handler{
		"x/say": func(_ context.Context, s Session) error {
			return s.Send(map[string]any{"text": nasty, "bytes": []byte(nasty)})
		},
		"x/fail": func(context.Context, Session) error { return errors.New(nasty) },
		"x/raw": func(_ context.Context, s Session) error {
			return s.Send(json.RawMessage(`"\u001B]0;x\b\u0007"`))
		}})
	defer a.Close()
	const plain = "a[2Jb31mcdef\ng\\u001bh"
	var said struct {
		Text  string
		Bytes []byte
	}
	if err := a.Invoke(t.Context(), "x/say", nil, &said); err != nil || said.Text != plain ||
		string(said.Bytes) != nasty {
		t.Errorf("answer: got %q, %q, %v, want %q", said.Text, said.Bytes, err, plain)
	}

	if err := a.Invoke(t.Context(), "x/fail", nil, nil); err == nil || err.Error() != plain {
		t.Errorf("error: got %q, want %q", err, plain)
	}

	var raw string
	if err := a.Invoke(t.Context(), "x/raw", nil, &raw); err != nil || raw != "]0;x" {
		t.Errorf("other spellings: got %q, %v", raw, err)
	}
}
