package host

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

// port is one end of a line that stays when whoever reads it goes: what comes meanwhile waits, and nobody
// is told.
type port struct {
	in     <-chan []byte
	out    chan<- []byte
	closed chan struct{}
	once   sync.Once
}

func (p *port) Read(b []byte) (int, error) {
	select {
	case got := <-p.in:
		if len(got) > len(b) {
			panic("a piece larger than what was asked for")
		}
		return copy(b, got), nil
	case <-p.closed:
		return 0, io.EOF
	}
}

func (p *port) Write(b []byte) (int, error) {
	p.out <- bytes.Clone(b)
	return len(b), nil
}

func (p *port) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// wire is a line.
type wire struct{ down, up chan []byte }

func newWire() wire { return wire{make(chan []byte, 100), make(chan []byte, 100)} }

func (w wire) near() *port { return &port{in: w.up, out: w.down, closed: make(chan struct{})} }
func (w wire) far() *port  { return &port{in: w.down, out: w.up, closed: make(chan struct{})} }

// serve puts an agent at the far end, and returns what ends it.
func (w wire) serve(t *testing.T, handlers map[string]Handler) (end func()) {
	t.Helper()
	p := w.far()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := ServeLine(context.Background(), p, handlers); err != nil {
			t.Errorf("ServeLine: got %v, want nil", err)
		}
	}()
	end = func() { p.Close(); <-ended }
	t.Cleanup(end)
	return end
}

func (w wire) connect(t *testing.T) Agent {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	a, err := ConnectLine(ctx, w.near())
	must(t, err)
	t.Cleanup(func() { a.Close() })
	return a
}

// hold opens a session that stays.
func hold(t *testing.T, a Agent, who string) Session {
	t.Helper()
	s, err := a.Open(t.Context(), "x/hold", who)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// hears receives from a channel that must not stay empty.
func hears(t *testing.T, c <-chan string, want string) {
	t.Helper()
	select {
	case got := <-c:
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	case <-time.After(5 * time.Second):
		t.Errorf("got nothing, want %s", want)
	}
}

// TestLineAgentKilled: the end of an agent cannot be seen on a line; the next one's hello ends the
// sessions of the one before, and half a frame that the dead one left hurts nobody.
func TestLineAgentKilled(t *testing.T) {
	w := newWire()
	came := make(chan string, 9)
	dead := w.far()
	dead.Write(appendFrame(nil, frame{frameHello, 0, []byte("77")})) // says no more
	a := w.connect(t)
	lost := hold(t, a, "lost")
	dead.Write(appendFrame(nil, frame{frameData, 7, []byte("123456789")})[:25])
	dead.Close()
	w.serve(t, map[string]Handler{"x/hold": holds(came, make(chan string, 9))})
	expect.Error(t, "session of the dead agent", lost.Recv(nil), ErrUnreachable)
	// What it was asked in the meantime, the new one does not know to be another's; closing the session
	// tells it.
	hears(t, came, "lost")
	lost.Close()
	hold(t, a, "new")
	hears(t, came, "new")
}

// TestLineAgentSaysHelloAgain: a hello by the same agent changes nothing.
func TestLineAgentSaysHelloAgain(t *testing.T) {
	w := newWire()
	came := make(chan string, 9)
	w.serve(t, map[string]Handler{"x/hold": holds(came, make(chan string, 9)),
		"x/say": Answering(func(context.Context, any) (string, error) { return "here", nil })})
	a := w.connect(t)
	s := hold(t, a, "one")
	hears(t, came, "one")
	for range 3 {
		must(t, a.(*client).sayHello())
	}

	var word string
	if err := a.Invoke(t.Context(), "x/say", nil, &word); err != nil || word != "here" {
		t.Errorf("after hello again: got %q, %v; want an answer", word, err)
	}

	if s.(*session).in.end != nil {
		t.Errorf("session: got %v, want it open", s.(*session).in.end)
	}
}

// TestLineControllerKilled: the next controller's hello abandons the sessions of the one before, whose
// last words are not answered to it.
func TestLineControllerKilled(t *testing.T) {
	w := newWire()
	came := make(chan string, 9)
	gone := make(chan string, 9)
	w.serve(t, map[string]Handler{"x/hold": holds(came, gone)})
	first := w.connect(t)
	hold(t, first, "first")
	hears(t, came, "first")
	first.(*client).link.rwc.Close() // not one word
	second := w.connect(t)
	hears(t, gone, "first")
	hold(t, second, "second")
	hears(t, came, "second")
	select {
	case who := <-gone:
		t.Errorf("abandoned: got %s, want nobody", who)
	case <-time.After(50 * time.Millisecond):
	}
}

// TestLineIsConnectedWhenTheAgentAnswers: a guest boots for seconds, and a serial line forgets what comes
// before it is opened.
func TestLineIsConnectedWhenTheAgentAnswers(t *testing.T) {
	w := newWire()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if a, err := ConnectLine(ctx, w.near()); !errors.Is(err, context.DeadlineExceeded) || a != nil {
		t.Errorf("nobody there: got %v, %v; want the deadline", a, err)
	}

	dead := w.near()
	dead.Close()
	if a, err := ConnectLine(t.Context(), dead); !errors.Is(err, ErrUnreachable) || a != nil {
		t.Errorf("line lost: got %v, %v; want ErrUnreachable", a, err)
	}

	time.AfterFunc(100*time.Millisecond, func() {
		for len(w.down) > 0 {
			<-w.down
		}

		w.up <- []byte("booting CP\x01...")
		w.serve(t, nil)
	})
	a := w.connect(t)
	if _, _, err := a.Clock(t.Context()); err != nil {
		t.Errorf("clock: got %v, want it to answer", err)
	}
}
