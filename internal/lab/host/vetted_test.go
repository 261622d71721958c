package host

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

// TestVetted: the handler sees what the check lets pass, and the messages behind it unchanged; a refusal is
// an error of the session.
func TestVetted(t *testing.T) {
	collect := func(_ context.Context, s Session) error {
		var all []int
		for {
			var n int
			if err := s.Recv(&n); err != nil {
				return s.Send(all)
			}

			all = append(all, n)
		}
	}
	check := func(first json.RawMessage) (any, error) {
		var n int
		if err := json.Unmarshal(first, &n); err != nil {
			return nil, err
		}

		if n > 100 {
			return nil, errors.New("too much")
		}

		return 10 * n, nil
	}
	a := Inside(context.Background(), map[string]Handler{"x/vetted": Vetted(collect, check)})
	defer a.Close()
	s, err := a.Open(context.Background(), "x/vetted", 4)
	must(t, err)
	defer s.Close()
	for _, n := range []int{5, 6} {
		must(t, s.Send(n))
	}

	must(t, s.Finish())
	var got []int
	must(t, s.Recv(&got))
	expect.Same(t, "messages", []int{40, 5, 6}, got)
	for _, in := range []any{101, "text"} {
		if err := a.Invoke(context.Background(), "x/vetted", in, nil); err == nil {
			t.Errorf("%v: got no error, want a refusal", in)
		}
	}
}

func TestAtOnce(t *testing.T) {
	wait := func(_ context.Context, s Session) error {
		if err := s.Send("in"); err != nil {
			return err
		}

		for s.Recv(nil) == nil {
		}
		return nil
	}
	a := Inside(context.Background(), AtOnce(2, map[string]Handler{"x/a": wait, "x/b": wait}))
	defer a.Close()
	begin := func(verb string) (s Session, err error) {
		s, err = a.Open(context.Background(), verb, nil)
		must(t, err)
		var word string
		return s, s.Recv(&word)
	}
	first, err := begin("x/a")
	if err != nil {
		t.Fatalf("first: %v", err)
	}

	if _, err := begin("x/b"); err != nil {
		t.Fatalf("second: %v", err)
	}

	_, err = begin("x/a")
	expect.Error(t, "third", err, "too many sessions at once")
	must(t, first.Finish())
	if err := first.Recv(nil); !errors.Is(err, io.EOF) {
		t.Fatalf("the first ends: got %v, want %v", err, io.EOF)
	}

	if _, err := begin("x/b"); err != nil {
		t.Errorf("after the first has ended: %v, want that there is room", err)
	}
}
