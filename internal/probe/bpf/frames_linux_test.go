package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// open loads a load's programs, or skips the test where that is not allowed.
func open(t *testing.T, l Load) *Frames {
	t.Helper()
	f, err := Open(l, 0)
	if errors.Is(err, unix.EPERM) {
		t.Skip("skip: needs root to load BPF programs")
	}

	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// run lets a program check one frame, as if a device had received it.
func run(t *testing.T, f *Frames, frame []byte) (verdict uint32, out []byte) {
	t.Helper()
	options := ebpf.RunOptions{Data: frame, DataOut: make([]byte, 2000), Repeat: 1}
	verdict, err := f.loaded.Program.Run(&options)
	if err != nil {
		t.Fatal(err)
	}

	return verdict, options.DataOut
}

// receiver loads the program that receives what a load sends.
func receiver(t *testing.T, l Load) *Frames {
	t.Helper()
	l.Send, l.Receive = nil, l.Send
	return open(t, l)
}

// arrived returns the counts of each flow, without its ports.
func arrived(t *testing.T, f *Frames) []Arrived {
	t.Helper()
	got, err := f.Arrived()
	if err != nil {
		t.Fatal(err)
	}

	for i := range got {
		got[i].Ports = [4]byte{}
	}

	return got
}

// path holds a program that sends from now on, its receiver, and a writer of the same frames for a socket.
type path struct {
	Load
	sender, sink *Frames
	writer       *Writer
	written      []byte
	stamped      int
}

func openPath(t *testing.T, l Load) *path {
	t.Helper()
	p := &path{Load: l, sender: open(t, l), sink: receiver(t, l), writer: NewWriter(l)}
	now := uint64(clock(t))
	s := &p.sender.state
	s.Begin = now
	s.Start = now
	s.End = 1 << 62
	s.Stop = 1 << 62
	s.Next = now
	if err := p.sender.enter(); err != nil {
		t.Fatal(err)
	}

	p.written = make([]byte, p.writer.Size())
	p.writer.Begin(p.written)
	return p
}

// send has frame i written over a page and received: it must be whole, as a router and a receiver read it,
// and as the writer writes it.
func (p *path) send(t *testing.T, i int, page []byte) {
	t.Helper()
	_, b := run(t, p.sender, page)
	at := p.headers()
	d := Datagram{
		Flow:  i % 2,
		Phase: Window,
		Seq:   uint32(i / 2),
		Stamp: int64(binary.BigEndian.Uint64(b[at+8:])),
	}
	if d.Stamp > 0 {
		p.stamped++
	}

	want := numbered(p.Load, d)
	copy(want[at-2:at], b[at-2:])
	if diff := cmp.Diff(want, b); diff != "" {
		t.Fatalf("IPv%d, frame %d (-want +got):\n%s", p.IP, i, diff)
	}

	if n := add(b[at-udp:], pseudo(b, p.IP)); n != 0xffff {
		t.Fatalf("IPv%d, frame %d: sum of UDP %#x, want 0xffff", p.IP, i, n)
	}

	verdict, _ := run(t, p.sink, b)
	if verdict != 1 {
		t.Fatalf("IPv%d, frame %d: verdict %d of the receiver, want drop (1)", p.IP, i, verdict)
	}

	n := p.writer.Put(p.written, d.Flow, d.Phase, d.Seq, d.Stamp)
	if diff := cmp.Diff(b, p.written[:n]); diff != "" {
		t.Fatalf("IPv%d, frame %d: what is written for a socket differs (-program +writer):\n%s",
			p.IP, i, diff)
	}
}

// TestArrivalsAreCountedExactly gives the receiving program known sequences: what it counts must be what
// was done to them.
func TestArrivalsAreCountedExactly(t *testing.T) {
	span := func(from, to uint32) (out []uint32) {
		for i := from; i != to; i++ {
			out = append(out, i)
		}
		return out
	}
	join := func(parts ...[]uint32) (out []uint32) {
		for _, p := range parts {
			out = append(out, p...)
		}
		return out
	}
	const memory = 4096 * 32
	tests := []struct {
		name string
		seqs []uint32
		want Arrived
	}{
		{"in order", span(0, 100), Arrived{Next: 100, Received: 100}},
		{"lost", join(span(0, 10), span(13, 20)), Arrived{Next: 20, Received: 17, Lost: 3}},
		{"lost at the beginning", span(5, 10), Arrived{Next: 10, Received: 5, Lost: 5}},
		{"late", join(span(0, 10), span(12, 20), []uint32{10, 11}), Arrived{
			Next:      20,
			Received:  20,
			Reordered: 2,
		}},
		{"twice", join(span(0, 10), []uint32{3, 9, 9}), Arrived{Next: 10, Received: 10, Duplicates: 3}},
		{"late twice", join(span(0, 10), []uint32{12, 10, 10}), Arrived{
			Next:       13,
			Received:   12,
			Lost:       1,
			Reordered:  1,
			Duplicates: 1,
		}},
		{"a long gap", join(span(0, 40), []uint32{3 * memory, 3*memory - 1, 7}), Arrived{
			Next:      3*memory + 1,
			Received:  42,
			Lost:      3*memory - 41,
			Reordered: 1,
			Ancient:   1,
		}},
		{"as old as can be told", []uint32{memory - 1, 0, 0}, Arrived{
			Next:       memory,
			Received:   2,
			Lost:       memory - 2,
			Reordered:  1,
			Duplicates: 1,
		}},
		{"older", []uint32{memory, 0}, Arrived{Next: memory + 1, Received: 1, Lost: memory, Ancient: 1}},
		{"damaged", []uint32{0, 1 << 31, 1}, Arrived{Next: 2, Received: 2, Strange: 1}},
	}
	for _, ip := range []int{4, 6} {
		for _, shared := range []bool{false, true} {
			for _, tt := range tests {
				l, tuple := testLoad(ip)
				l.Send = []Tuple{tuple}
				l.Shared = shared
				f := receiver(t, l)
				for _, n := range tt.seqs {
					verdict, _ := run(t, f, numbered(l, Datagram{Phase: Window, Seq: n}))
					if verdict != 1 {
						t.Fatalf("IPv%d, %s: verdict %d on number %d, want drop (1)", ip, tt.name, verdict, n)
					}
				}

				tt.want.All = int64(len(tt.seqs))
				tt.want.Bytes = tt.want.Received * int64(l.PacketSize-l.overhead())
				diff := cmp.Diff([]Arrived{tt.want}, arrived(t, f))
				if diff != "" {
					t.Errorf("IPv%d, shared %v, %s (-want +got):\n%s", ip, shared, tt.name, diff)
				}

				f.Close()
			}
		}
	}
}

// TestNumbersGoOnBeyond32Bits: the receiver counts past the number's width.
func TestNumbersGoOnBeyond32Bits(t *testing.T) {
	l, tuple := testLoad(4)
	l.Send = []Tuple{tuple}
	f := receiver(t, l)
	for n := range uint64(9) {
		run(t, f, numbered(l, Datagram{Phase: Window, Seq: uint32(n << 29)}))
	}

	want := []Arrived{{
		Next:     1<<32 + 1,
		Received: 9,
		Lost:     1<<32 + 1 - 9,
		All:      9,
		Bytes:    9 * int64(l.PacketSize-l.overhead()),
	}}
	diff := cmp.Diff(want, arrived(t, f))
	if diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestThirdPartyFramesPass: what is not of this load goes on to the network stack.
func TestThirdPartyFramesPass(t *testing.T) {
	for _, ip := range []int{4, 6} {
		l, tuple := testLoad(ip)
		l.Send = []Tuple{tuple}
		at := l.headers()
		whole := func() []byte { return numbered(l, Datagram{Phase: Window, Seq: 1}) }
		spoil := func(offset int, to byte) []byte {
			b := whole()
			b[offset] = to
			return b
		}
		f := receiver(t, l)
		for name, b := range map[string][]byte{
			"another tag":         spoil(at, 9),
			"another source":      spoil(at-udp-5, 99),
			"another port":        spoil(at-udp+1, 77),
			"another protocol":    spoil(map[int]int{4: 23, 6: 20}[ip], 6),
			"another flow":        spoil(at+17, 5),
			"another kind":        spoil(13, 6),
			"a fragment, if IPv4": spoil(map[int]int{4: 21, 6: 12}[ip], 3),
			"too short":           whole()[:at+10],
		} {
			verdict, _ := run(t, f, b)
			if verdict != 2 {
				t.Errorf("IPv%d, %s: verdict %d, want pass (2)", ip, name, verdict)
			}
		}

		if verdict, _ := run(t, f, append(spoil(ethernet+map[int]int{4: 3, 6: 5}[ip], 200),
			make([]byte, 200)...)); verdict != 1 {
			t.Errorf("IPv%d, another length: verdict %d, want drop (1)", ip, verdict)
		}

		run(t, f, numbered(l, Datagram{Phase: Warmup}))
		run(t, f, numbered(l, Datagram{Phase: Cooldown}))
		diff := cmp.Diff([]Arrived{{Wrong: 1, All: 2}}, arrived(t, f))
		if diff != "" {
			t.Errorf("IPv%d (-want +got):\n%s", ip, diff)
		}
	}
}

// TestFramesAreWrittenWhole gives the sending program a page full of garbage: what it makes of it is a
// whole frame, with right check sums and the next number of its flow, and the receiving program counts it.
func TestFramesAreWrittenWhole(t *testing.T) {
	for _, ip := range []int{4, 6} {
		for _, pps := range []float64{0, 1e9} {
			l, _ := testLoad(ip)
			l.PPS = pps
			p := openPath(t, l)
			const frames = 130
			for i := range frames {
				p.send(t, i, bytes.Repeat([]byte{0xa5}, l.PacketSize+ethernet))
			}

			want := (frames + stampEvery - 1) / stampEvery
			if p.stamped != want {
				t.Errorf("IPv%d: %d frames with a time, want %d", ip, p.stamped, want)
			}

			for i, a := range arrived(t, p.sink) {
				if a.Received != frames/2 || a.Lost != 0 || a.Next != frames/2 {
					t.Errorf("IPv%d, flow %d: got %+v, want %d received", ip, i, a, frames/2)
				}
			}

			sent, err := p.sender.Sent()
			if err != nil || sent.Flows[1][Window] != frames/2 ||
				sent.Began[Window] < int64(p.sender.state.Begin) {
				t.Errorf("IPv%d: sent %+v, %v, want %d of each flow", ip, sent, err, frames/2)
			}

			delays, early, err := p.sink.Delays()
			n := int64(0)
			for _, d := range delays {
				n += d
			}

			if err != nil || early != 0 || n != int64(p.stamped) {
				t.Errorf("IPv%d: %d delays and %d early, %v, want %d", ip, n, early, err, p.stamped)
			}
		}
	}
}

// TestFramesOfSeveralSizes: each frame has the size of its number, whole, as a router and a receiver read it,
// and as those write it who send by a socket; the receiving program counts its bytes, and nothing that has
// the size of another number.
func TestFramesOfSeveralSizes(t *testing.T) {
	for _, ip := range []int{4, 6} {
		l, _ := testLoad(ip)
		small := l.PacketSize
		l.PacketSize = 1500
		l.Sizes = []int{small, 552, small, 1500, small, 553}
		p := openPath(t, l)
		want := [2]int64{}
		const frames = 60
		for i := range frames {
			p.send(t, i, slices.Clone(p.sender.first))
			want[i%2] += int64(l.sizeOf(i%2, uint32(i/2)) - l.overhead())
		}

		other := l
		other.Sizes = nil
		other.PacketSize = small + 1
		run(t, p.sink, numbered(other, Datagram{Phase: Window, Seq: frames}))
		for i, a := range arrived(t, p.sink) {
			if a.Received != frames/2 || a.Bytes != want[i] || a.Wrong != int64(1-i) {
				t.Errorf("IPv%d, flow %d: got %+v, want %d frames of %d bytes of payload", ip, i, a, frames/2,
					want[i])
			}
		}
	}
}

// TestNoFrameIsDueUntilScheduled: the program says that it runs, and makes none.
func TestNoFrameIsDueUntilScheduled(t *testing.T) {
	const drop = 1
	l, tuple := testLoad(4)
	l.Send = []Tuple{tuple}
	l.PPS = 1000
	f := open(t, l)
	if runs, err := f.Runs(); runs || err != nil {
		t.Errorf("before: runs %v, %v", runs, err)
	}

	frame := make([]byte, l.PacketSize+ethernet)
	verdict, _ := run(t, f, frame)
	runs, err := f.Runs()
	if verdict != drop || !runs || err != nil {
		t.Errorf("before the timeline: verdict %d, runs %v, %v; want the frame dropped, and to be told",
			verdict, runs, err)
	}

	now := clock(t)
	if err := f.Schedule(Timeline{Begin: now, Start: now, End: 1 << 62, Stop: 1 << 62}); err != nil {
		t.Fatal(err)
	}

	verdict, _ = run(t, f, frame) // for a device that there is not
	sent, err := f.Sent()
	if verdict == drop || err != nil || sent.Flows[0][Window] != 1 {
		t.Errorf("after: verdict %d, sent %+v, %v; want a frame of the window", verdict, sent, err)
	}
}

// TestLateFramesBelongToTheirPhase: a frame is of the phase in which it was due, unless the window has been
// over for a millisecond; and what is older than the debt is not made good.
func TestLateFramesBelongToTheirPhase(t *testing.T) {
	const far, none = int64(1) << 61, -1
	ms := func(n int64) int64 { return n * 1e6 }
	for name, tt := range map[string]struct {
		next, start, end int64 // after now
		slack            int64 // > 0: next is the beginning
		phase            int
		least, most      int64 // by how much a frame of the window is late
	}{
		"due in the window":         {-ms(5), -ms(100), far, 0, Window, ms(5), maxDebt},
		"due before the window":     {-ms(10), -ms(5), far, 0, Warmup, 0, 0},
		"the window is over":        {-ms(10), -ms(100), -ms(5), 0, Cooldown, 0, 0},
		"due after the window":      {-ms(5), -ms(100), -ms(8), 0, Cooldown, 0, 0},
		"older than what is repaid": {-ms(1000), -ms(2000), far, 0, Window, maxDebt, maxDebt},
		"a burst without slack":     {-ms(5), -ms(5), -ms(4), 0, Cooldown, 0, 0},
		"a burst begins late":       {-ms(5), -ms(5), -ms(4), ms(20), Window, 0, 0},
		"a burst too late":          {-ms(30), -ms(30), -ms(29), ms(20), none, 0, 0},
	} {
		var sent Sent
		for try := range int64(20) {
			l, tuple := testLoad(4)
			l.Send = []Tuple{tuple}
			l.PPS = 1000
			f := open(t, l)
			now := clock(t) + ms(20*(1+try)) // by when all is entered
			s := &f.state
			s.Begin, s.Start, s.End, s.Stop = uint64(now-ms(3000)), uint64(now+tt.start), uint64(now+tt.end),
				uint64(now+far)
			s.Next, s.Slack = uint64(now+tt.next), uint64(tt.slack)
			if tt.slack > 0 {
				s.Begin = s.Next
			}

			if err := f.enter(); err != nil {
				t.Fatal(err)
			}

			time.Sleep(time.Duration(now - clock(t)))
			run(t, f, make([]byte, l.PacketSize+ethernet))
			var err error
			if sent, err = f.Sent(); err != nil {
				t.Fatal(err)
			}

			if slices.Max(sent.Began[:]) < now+ms(4) {
				break
			} // else the thread was held up, and more than the case's debt is owed
		}

		var want [phases]uint32
		if tt.phase != none {
			want[tt.phase] = 1
		}

		if sent.Flows[0] != want || sent.Late < tt.least || sent.Late > tt.most {
			t.Errorf("%s: sent %v, late by %d ns, want %v, late by %d to %d", name, sent.Flows[0], sent.Late,
				want, tt.least, tt.most)
		}
	}
}

func clock(t *testing.T) int64 {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		t.Fatal(err)
	}

	return ts.Nano()
}
