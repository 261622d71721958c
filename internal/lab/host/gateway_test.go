package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

// behindGateway returns n controllers that share one connection to an agent, and what ends that agent's
// connection.
func behindGateway(t *testing.T, n int, handlers map[string]Handler) (near []Agent, far Agent, lose func()) {
	t.Helper()
	a, b := net.Pipe()
	served := make(chan struct{})
	go func() { defer close(served); Serve(context.Background(), b, handlers) }()
	far = Connect(a)
	gateways := make(chan error, n)
	own := map[string]Handler{"gateway/name": func(_ context.Context, s Session) error {
		return s.Send("gateway")
	}}
	for range n {
		c, d := net.Pipe()
		go func() { gateways <- Gateway(context.Background(), d, far, own, nil) }()
		near = append(near, Connect(c))
	}

	t.Cleanup(func() {
		for _, c := range near {
			c.Close()
			if err := <-gateways; err != nil {
				t.Errorf("Gateway: got %v, want nil after its controller hung up", err)
			}
		}

		far.Close()
		<-served
	})
	return near, far, func() { b.Close() }
}

func TestGatewayServesSeveralControllers(t *testing.T) {
	near, _, _ := behindGateway(t, 3, arithmetic)
	var all sync.WaitGroup
	for i, a := range near {
		all.Go(func() {
			for n := range 50 {
				s, err := a.Open(t.Context(), "x/sum", i)
				if err != nil {
					t.Error(err)
					return
				}

				s.Send(n)
				s.Finish()
				var got int
				if err := s.Recv(&got); err != nil || got != i+n {
					t.Errorf("controller %d: sum: got %d, %v; want %d", i, got, err, i+n)
				}

				if err := s.Recv(&got); err != io.EOF {
					t.Errorf("controller %d: after the sum: got %v, want EOF", i, err)
				}

				s.Close()
			}

			expect.Error(t, fmt.Sprintf("controller %d: refuse", i),
				a.Invoke(t.Context(), "x/refuse", nil, nil), ErrUnsupported)
			expect.Error(t, fmt.Sprintf("controller %d: unknown verb", i),
				a.Invoke(t.Context(), "x/none", nil, nil), ErrUnknownVerb)
			var name string
			if err := a.Invoke(t.Context(), "gateway/name", nil, &name); err != nil || name != "gateway" {
				t.Errorf("controller %d: what the gateway serves itself: got %q, %v", i, name, err)
			}

			if off, bound, err := a.Clock(t.Context()); err != nil || off < -bound || off > bound {
				t.Errorf("controller %d: clock of this process: offset %d ± %d, %v", i, off, bound, err)
			}
		})
	}

	all.Wait()
}

func TestGatewayPassesSecrets(t *testing.T) {
	near, _, _ := behindGateway(t, 1, map[string]Handler{"x/echo": Asked(func(_ context.Context, s Session,
		_ any) error {
		secret, err := s.(SecretSession).RecvSecret()
		if err != nil {
			return err
		}
		return s.(SecretSession).SendSecret(secret)
	})})
	s, err := near[0].Open(t.Context(), "x/echo", nil)
	must(t, err)
	defer s.Close()
	s.(SecretSession).SendSecret(SecretFrom([]byte("hunter2")))
	got, err := s.(SecretSession).RecvSecret()
	must(t, err)
	got.Use(func(b []byte) error {
		if string(b) != "hunter2" {
			t.Errorf("secret: got another one of %d bytes", len(b))
		}
		return nil
	})
}

// holds is a handler that tells who came and who was abandoned.
func holds(came, gone chan<- string) Handler {
	return Asked(func(ctx context.Context, s Session, who string) error {
		came <- who
		<-ctx.Done()
		gone <- who
		return nil
	})
}

func TestGatewayAbandonsOneControllerOnly(t *testing.T) {
	ends := map[string]func(a Agent, s Session){
		"close session":    func(_ Agent, s Session) { s.Close() },
		"close controller": func(a Agent, _ Session) { a.Close() },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			came := make(chan string)
			gone := make(chan string)
			near, _, _ := behindGateway(t, 2, map[string]Handler{"x/hold": holds(came, gone)})
			var sessions []Session
			for i, a := range near {
				s, err := a.Open(t.Context(), "x/hold", fmt.Sprint(i))
				must(t, err)
				<-came
				sessions = append(sessions, s)
			}

			end(near[0], sessions[0])
			if who := <-gone; who != "0" {
				t.Errorf("abandoned: got %s, want 0", who)
			}

			select {
			case who := <-gone:
				t.Errorf("abandoned as well: got %s, want nobody", who)
			case <-time.After(50 * time.Millisecond):
			}

			sessions[1].Close()
			if who := <-gone; who != "1" {
				t.Errorf("abandoned at last: got %s, want 1", who)
			}
		})
	}
}

func TestGatewayWhoseAgentIsLost(t *testing.T) {
	came := make(chan string)
	near, _, lose := behindGateway(t, 2, map[string]Handler{"x/hold": holds(came, make(chan string, 2))})
	for i, a := range near {
		s, err := a.Open(t.Context(), "x/hold", fmt.Sprint(i))
		must(t, err)
		defer func() {
			var raw json.RawMessage
			expect.Error(t, fmt.Sprintf("controller %d: open session", i), s.Recv(&raw), ErrUnreachable)
		}()
		<-came
	}

	lose()
	for i, a := range near {
		err := a.Invoke(t.Context(), "x/hold", "late", nil)
		if !errors.Is(err, ErrUnreachable) || strings.Count(err.Error(), "unreachable") != 1 {
			t.Errorf("controller %d: later session: got %v, want ErrUnreachable, said once", i, err)
		}
	}
}
