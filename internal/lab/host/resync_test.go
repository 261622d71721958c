package host

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
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
	strict := &resync{ReadWriteCloser: oneWay{r}}
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
		{"lost byte of a payload", [][]byte{slices.Delete(large(1), 500, 501), small(2), small(3)},
			[]uint32{2, 3}},
		{"ends amidst a frame", [][]byte{small(1), large(2)[:500]}, []uint32{1}},
		{"begun twice", [][]byte{large(1)[:5000], large(1)[:7], large(2), small(3)}, []uint32{2, 3}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := slices.Concat(tt.line...)
			if got := sessionsOf(frames(t, bytes.NewReader(b))); !slices.Equal(got, tt.want) {
				t.Errorf("sessions: got %v, want %v", got, tt.want)
			}

			if got := sessionsOf(frames(t, iotest.HalfReader(bytes.NewReader(b)))); !slices.Equal(got,
				tt.want) {
				t.Errorf("sessions, read in pieces: got %v, want %v", got, tt.want)
			}
		})
	}
}

// TestResyncDoesNotWaitForLostBytes: the frame after one that lost a byte is delivered when it has arrived,
// not when enough has followed to fill the gap.
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
		f, _ := readFrame(&resync{ReadWriteCloser: near})
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

// TestAgentOverANoisyLine: calls with a deadline get through, each answered by its own answer or not at
// all.
func TestAgentOverANoisyLine(t *testing.T) {
	a, b := net.Pipe()
	go ServeLine(context.Background(), noisy{b, rand.New(rand.NewPCG(1, 2))}, arithmetic)
	agent, err := ConnectLine(t.Context(), noisy{a, rand.New(rand.NewPCG(3, 4))})
	must(t, err)
	defer agent.Close()
	const calls = 60
	answered := 0
	for n := range calls {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
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

	t.Logf("%d of %d answered", answered, calls)
	if answered < calls/3 || answered == calls {
		t.Errorf("answered: got %d of %d, want most, and a line that damages some", answered, calls)
	}
}

// FuzzResync: whatever comes between frames, only whole frames are delivered, and those that were sent are
// among them, in order.
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
