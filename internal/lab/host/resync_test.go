package host

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/iotest"
	"time"
)

// oneWay is a connection that only delivers.
type oneWay struct{ io.Reader }

func (oneWay) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
func (oneWay) Close() error              { return nil }

// frames reads what a resynchronising reader makes of b.
func frames(t testing.TB, r io.Reader) []frame {
	t.Helper()
	strict := Resync(oneWay{r})
	var out []frame
	for {
		f, err := readFrame(strict)
		if err == io.EOF {
			return out
		}
		if err != nil && !errors.Is(err, ErrVersion) {
			t.Fatalf("read after resynchronising: %v, want whole frames only", err)
		}
		out = append(out, f)
	}
}

func sessionsOf(fs []frame) []uint32 {
	var ids []uint32
	for _, f := range fs {
		ids = append(ids, f.session)
	}
	return ids
}

func TestResync(t *testing.T) {
	small := func(id uint32) []byte { return appendFrame(nil, frame{frameData, id, []byte(`{"a":1}`)}) }
	large := func(id uint32) []byte {
		return appendFrame(nil, frame{frameData, id, bytes.Repeat([]byte("CPCP"), 50_000)})
	}
	changed := func(b []byte, at int) []byte {
		b = bytes.Clone(b)
		b[at] ^= 0x40
		return b
	}
	tests := []struct {
		name string
		line [][]byte
		want []uint32
	}{
		{"nothing", nil, nil},
		{"as it should be", [][]byte{small(1), large(2), small(3)}, []uint32{1, 2, 3}},
		{"no payload", [][]byte{appendFrame(nil, frame{frameFinish, 4, nil}), small(5)}, []uint32{4, 5}},
		{"text before", [][]byte{[]byte("CPU0: booting, CP, C"), small(1)}, []uint32{1}},
		{"text between", [][]byte{small(1), []byte("panic\r\nCP\x01\x02"), small(2)}, []uint32{1, 2}},
		{"amidst a frame", [][]byte{large(1)[100:], small(2)}, []uint32{2}},
		{"changed header", [][]byte{small(1), changed(small(2), 9), small(3)}, []uint32{1, 3}},
		{"changed payload", [][]byte{small(1), changed(large(2), 777), small(3)}, []uint32{1, 3}},
		{"lost byte of a header", [][]byte{slices.Delete(small(1), 5, 6), small(2)}, []uint32{2}},
		{"lost byte of a payload", [][]byte{slices.Delete(large(1), 500, 501), small(2), small(3)}, []uint32{2, 3}},
		{"ends amidst a frame", [][]byte{small(1), large(2)[:500]}, []uint32{1}},
		{"begun twice", [][]byte{large(1)[:5000], large(1)[:7], large(2), small(3)}, []uint32{2, 3}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := slices.Concat(tt.line...)
			if got := sessionsOf(frames(t, bytes.NewReader(b))); !slices.Equal(got, tt.want) {
				t.Errorf("sessions: got %v, want %v", got, tt.want)
			}
			if got := sessionsOf(frames(t, iotest.HalfReader(bytes.NewReader(b)))); !slices.Equal(got, tt.want) {
				t.Errorf("sessions, read in pieces: got %v, want %v", got, tt.want)
			}
		})
	}
}

// TestResyncDoesNotWaitForLostBytes: the frame after one that lost a byte is
// delivered when it has arrived, not when enough has followed to fill the gap.
func TestResyncDoesNotWaitForLostBytes(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	go func() {
		b := appendFrame(nil, frame{frameData, 1, bytes.Repeat([]byte("x"), 1000)})
		far.Write(slices.Delete(b, 300, 301))
		far.Write(appendFrame(nil, frame{frameFinish, 2, nil})) // 20 bytes complete nothing
	}()
	got := make(chan frame)
	go func() {
		f, _ := readFrame(Resync(near))
		got <- f
	}()
	select {
	case f := <-got:
		if f.session != 2 {
			t.Errorf("session: got %d, want 2", f.session)
		}
	case <-time.After(5 * time.Second):
		t.Error("the frame that followed was not delivered")
	}
}

// noisy changes, drops and invents bytes now and then.
type noisy struct {
	io.ReadWriteCloser
	random *rand.Rand
}

func (n noisy) Write(p []byte) (int, error) {
	out := make([]byte, 0, len(p)+1)
	for _, b := range p {
		switch n.random.IntN(2000) {
		case 0:
			b ^= 1 << n.random.IntN(8)
		case 1:
			continue
		case 2:
			out = append(out, 'C')
		}
		out = append(out, b)
	}
	_, err := n.ReadWriteCloser.Write(out)
	return len(p), err
}

// TestAgentOverANoisyLine: calls with a deadline get through, each answered
// by its own answer or not at all.
func TestAgentOverANoisyLine(t *testing.T) {
	a, b := net.Pipe()
	go Serve(context.Background(), Resync(noisy{b, rand.New(rand.NewPCG(1, 2))}), map[string]Handler{
		"x/double": func(_ context.Context, s Session) error {
			var n int
			if err := s.Recv(&n); err != nil {
				return err
			}
			return s.Send(2 * n)
		},
	})
	agent := Connect(Resync(noisy{a, rand.New(rand.NewPCG(3, 4))}))
	defer agent.Close()
	answered := 0
	for n := range 200 {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		var got int
		err := agent.Invoke(ctx, "x/double", n, &got)
		cancel()
		if err == nil {
			answered++
			if got != 2*n {
				t.Errorf("double of %d: got %d", n, got)
			}
		}
	}
	t.Logf("%d of 200 answered", answered)
	if answered < 100 || answered == 200 {
		t.Errorf("answered: got %d of 200, want most, and a line that damages some", answered)
	}
}

// port is one end of a line that stays when whoever reads it goes: what comes
// meanwhile waits.
type port struct {
	in     <-chan []byte
	out    chan<- []byte
	closed chan struct{}
	once   *sync.Once
}

func (p port) Read(b []byte) (int, error) {
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

func (p port) Write(b []byte) (int, error) {
	p.out <- bytes.Clone(b)
	return len(b), nil
}

func (p port) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// TestAnotherAgentOnTheLine: the end of an agent cannot be seen on a line
// that stays; the next one's greeting ends the sessions of the one before.
func TestAnotherAgentOnTheLine(t *testing.T) {
	down, up := make(chan []byte, 100), make(chan []byte, 100)
	ctl := Connect(Resync(port{up, down, make(chan struct{}), new(sync.Once)}))
	t.Cleanup(func() { ctl.Close() })
	handlers := map[string]Handler{"x/hold": func(ctx context.Context, s Session) error {
		s.Recv(nil)
		s.Send("held")
		<-ctx.Done()
		return nil
	}}
	live := func() (end func()) {
		ctx, cancel := context.WithCancel(context.Background())
		p := port{down, up, make(chan struct{}), new(sync.Once)}
		if err := Announce(p); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			serve(ctx, Resync(p), func(verb string) Handler { return handlers[verb] })
		}()
		return func() { cancel(); <-ended }
	}
	early, err := ctl.Open(t.Context(), "x/hold", nil) // nobody is there yet
	if err != nil {
		t.Fatal(err)
	}
	end := live()
	var word string
	if err := early.Recv(&word); err != nil || word != "held" {
		t.Fatalf("session opened before the first agent: got %q, %v; want it served", word, err)
	}
	end()
	down <- []byte("half a frame: CP\x01")
	between, err := ctl.Open(t.Context(), "x/hold", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer live()()
	for name, s := range map[string]Session{"of the first agent": early, "opened between": between} {
		err := s.Recv(&word)
		for err == nil {
			err = s.Recv(&word)
		}
		// The first one's handler may also have told how it ended.
		if name == "opened between" && !errors.Is(err, ErrUnreachable) || errors.Is(err, ErrAbandoned) {
			t.Errorf("session %s: got %v, want ErrUnreachable", name, err)
		}
		s.Close()
	}
	late, err := ctl.Open(t.Context(), "x/hold", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	if err := late.Recv(&word); err != nil || word != "held" {
		t.Errorf("session of the second agent: got %q, %v; want it served", word, err)
	}
}

// FuzzResync: whatever comes between frames, only whole frames are
// delivered, and those that were sent are among them, in order.
func FuzzResync(f *testing.F) {
	f.Add([]byte("CP"), []byte("C"), []byte{})
	f.Add(appendFrame(nil, frame{frameData, 9, []byte(`1`)}), []byte("CP\x01\x02"), []byte("CPCPC"))
	f.Add(appendFrame(nil, frame{frameData, 9, make([]byte, 99)})[:30], []byte("x"), []byte("CP"))
	f.Fuzz(func(t *testing.T, before, between, after []byte) {
		first := frame{frameData, 1 << 30, []byte(`{"first":true}`)}
		second := frame{frameSecret, 1<<30 + 1, []byte("CP\x01\x02\x03")}
		b := slices.Concat(before, appendFrame(nil, first), between, appendFrame(nil, second), after)
		got := frames(t, bytes.NewReader(b))
		want := []frame{first, second}
		for _, f := range got {
			if len(want) > 0 && f.session == want[0].session && bytes.Equal(f.payload, want[0].payload) {
				want = want[1:]
			}
		}
		if len(want) > 0 {
			t.Fatalf("frames: got %v, want %v among them", got, want)
		}
	})
}
