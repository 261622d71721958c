package host

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

func pair(t *testing.T, handlers map[string]Handler) Agent {
	t.Helper()
	agent := Inside(context.Background(), handlers)
	t.Cleanup(func() { must(t, agent.Close()) })
	return agent
}

// arithmetic holds verbs that compute, and one that refuses to.
var arithmetic = map[string]Handler{
	"x/double": Answering(func(_ context.Context, n int) (int, error) { return 2 * n, nil }),
	"x/sum": Asked(func(_ context.Context, s Session, sum int) error {
		for {
			var n int
			if err := s.Recv(&n); err == io.EOF {
				return s.Send(sum)
			} else if err != nil {
				return err
			}

			sum += n
		}
	}),
	"x/refuse": func(context.Context, Session) error { return fmt.Errorf("not here: %w", ErrUnsupported) },
}

func TestInvoke(t *testing.T) {
	agent := pair(t, arithmetic)
	var got int
	if err := agent.Invoke(t.Context(), "x/double", 21, &got); err != nil || got != 42 {
		t.Errorf("double: got %d, %v; want 42", got, err)
	}

	expect.Error(t, "refuse", agent.Invoke(t.Context(), "x/refuse", nil, nil), ErrUnsupported)
	expect.Error(t, "unknown verb", agent.Invoke(t.Context(), "x/none", nil, nil), ErrUnknownVerb)
	if off, bound, err := agent.Clock(t.Context()); err != nil || off < -bound || off > bound {
		t.Errorf("clock of this process: offset %d ± %d, %v", off, bound, err)
	}
}

func TestEffectEndsWithSession(t *testing.T) {
	ended := make(chan error, 1)
	handlers := map[string]Handler{"x/hold": func(ctx context.Context, s Session) error {
		var in int
		var err error
		for err == nil {
			err = s.Recv(&in)
		}

		<-ctx.Done()
		ended <- err
		return nil
	}}
	for _, end := range []string{"close session", "close agent"} {
		t.Run(end, func(t *testing.T) {
			agent := pair(t, handlers)
			s, err := agent.Open(t.Context(), "x/hold", 1)
			must(t, err)
			if end == "close agent" {
				agent.Close()
			} else {
				s.Close()
			}

			expect.Error(t, "the handler's session", <-ended, ErrAbandoned)
		})
	}
}

func TestFinishDrains(t *testing.T) {
	agent := pair(t, arithmetic)
	s, err := agent.Open(t.Context(), "x/sum", 1)
	must(t, err)
	s.Send(2)
	s.Send(3)
	s.Finish()
	var got int
	if err := s.Recv(&got); err != nil || got != 6 {
		t.Fatalf("got %d, %v; want 6", got, err)
	}

	if err := s.Recv(&got); err != io.EOF {
		t.Fatalf("after the result: %v, want EOF", err)
	}
}

func TestRelayCarriesSecrets(t *testing.T) {
	inner := map[string]Handler{"x/echo": Asked(func(_ context.Context, s Session, word string) error {
		secret, err := s.(SecretSession).RecvSecret()
		if err != nil {
			return err
		}
		return secret.Use(func(b []byte) error { return s.Send(word + string(b)) })
	})}
	outer := map[string]Handler{"x/echo": Asked(func(ctx context.Context, s Session,
		first json.RawMessage) error {
		child := Inside(ctx, inner)
		defer child.Close()
		far, err := child.Open(ctx, "x/echo", first)
		if err != nil {
			return err
		}

		return Relay(s, far)
	})}
	agent := pair(t, outer)
	s, err := agent.Open(t.Context(), "x/echo", "a")
	must(t, err)
	s.(SecretSession).SendSecret(SecretFrom([]byte("b")))
	s.Finish()
	var got string
	if err := s.Recv(&got); err != nil || got != "ab" {
		t.Fatalf("got %q, %v; want ab", got, err)
	}
}

func TestLostLinkEndsEverySession(t *testing.T) {
	a, b := net.Pipe()
	agent := Connect(a)
	go io.Copy(io.Discard, b)
	s, err := agent.Open(t.Context(), "x/any", nil)
	must(t, err)
	time.AfterFunc(10*time.Millisecond, func() { b.Close() })
	expect.Error(t, "Recv on a lost link", s.Recv(nil), ErrUnreachable)
	_, err = agent.Open(t.Context(), "x/any", nil)
	expect.Error(t, "Open on a lost link", err, ErrUnreachable)
	agent.Close()
}

func TestOtherVersionIsATypedAnswer(t *testing.T) {
	b := appendFrame(nil, frame{frameOpen, 1, nil})
	b[2] = 9
	// The header's own checksum must be right for the version to be checked.
	_, err := readFrame(bytes.NewReader(rechecksum(b)))
	expect.Error(t, "another version", err, ErrVersion)
}

func TestSecretIsRedactedEverywhere(t *testing.T) {
	s := SecretFrom([]byte("hunter2"))
	j, _ := json.Marshal(map[string]any{"k": s, "p": &s})
	for _, text := range []string{fmt.Sprint(s), fmt.Sprintf("%v %+v %#v %s %q", s, s, s, s, s),
		fmt.Sprintf("%x", s), string(j)} {
		if strings.Contains(text, "hunter2") || strings.Contains(text, "68756e74") {
			t.Errorf("secret printed: %s", text)
		}
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add(appendFrame(nil, frame{frameData, 7, []byte(`{"a":1}`)}))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := readFrame(bytes.NewReader(b))
		if err != nil {
			if got.kind != 0 || got.payload != nil {
				t.Fatalf("error with a result: %v", err)
			}
			return
		}

		again := appendFrame(nil, got)
		if !bytes.Equal(again, b[:len(again)]) {
			t.Fatal("frame does not encode to what it was read from")
		}
	})
}

func rechecksum(b []byte) []byte {
	binary.BigEndian.PutUint32(b[16:], crc32.ChecksumIEEE(b[:16]))
	return b
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
