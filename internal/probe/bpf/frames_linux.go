package bpf

import (
	"bytes"
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// These types and Arrived are the Go versions of the structures in frames.c. Fields in network byte order are
// byte arrays.
type config struct {
	Gap, Debt                   uint64
	Part, Burst, Stamp, Out, In uint32
	Tag                         [4]byte
	From, To                    [16]byte
	_                           [2]byte
	IP, Shared                  uint8
	Sink, Base                  uint16

	Sums                 [MaxSizes]uint32
	Lengths, Checks, UDP [MaxSizes][2]byte
	Cut, Payload         [MaxSizes]uint16
	Sizes                uint16
	_                    [3]uint16
}

type outFlow struct {
	Word [8]byte
	Tail [4]byte
	Sum  uint32
	Seq  [phases + 1]uint32
}

type sending struct {
	Head                                 [48]byte
	Begin, Start, End, Stop              uint64
	Began                                [phases + 1]int64
	Next, Soon, Late, Slack              uint64
	Part, Phase, Left, Until, Flow, Runs uint32
	Flows                                [MaxFlows]outFlow
}

// once is the number of repetitions of one test run. It is so large that in effect the run continues until
// a signal arrives.
const once = 1 << 30

// Frames sends and receives the frames of a load in the kernel.
type Frames struct {
	load   Load
	pace   pace
	state  sending
	first  []byte // first frame of the load, which is the input of the test run
	loaded objects
	link   link.Link

	stop   atomic.Bool
	thread atomic.Int64 // thread ID of the sending thread, or 0
}

// objects holds the programs and maps of frames.c.
type objects struct {
	Program *ebpf.Program `ebpf:"frames"`
	State   *ebpf.Map     `ebpf:".bss"`
	Arrived *ebpf.Map     `ebpf:"arrived"`
	Delays  *ebpf.Map     `ebpf:"delays"`
}

// The embedded files are frames.c compiled for both byte orders.
//
//go:embed frames_bpfel.o frames_bpfeb.o
var compiled embed.FS

func specification() (*ebpf.CollectionSpec, error) {
	name := "frames_bpfel.o"
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		name = "frames_bpfeb.o"
	}

	b, err := compiled.ReadFile(name)
	if err != nil {
		return nil, err
	}

	return ebpf.LoadCollectionSpecFromReader(bytes.NewReader(b))
}

// Open loads the program and maps for a load. Frames are sent through the device with the given index in
// the caller's network namespace.
func Open(l Load, device int) (*Frames, error) {
	if l.Base+len(l.Send) > MaxFlows || len(l.Receive) > MaxFlows {
		return nil, fmt.Errorf("load frames of %d and %d flows: want at most %d", l.Base+len(l.Send),
			len(l.Receive), MaxFlows)
	}

	n := len(l.Sizes)
	if n > MaxSizes {
		return nil, fmt.Errorf("load frames of %d sizes: want at most %d", n, MaxSizes)
	}

	spec, err := specification()
	if err != nil {
		return nil, err
	}

	f := &Frames{load: l, pace: paceOf(l.PPS)}
	f.start()
	if err := errors.Join(spec.Variables["config"].Set(f.config()),
		spec.Variables["sending"].Set(&f.state)); err != nil {
		return nil, fmt.Errorf("set the variables of a BPF program: %w", err)
	}

	arrived := spec.Maps["arrived"]
	arrived.MaxEntries = uint32(max(len(l.Receive), 1))
	spec.Maps["seen"].MaxEntries = arrived.MaxEntries
	for i, t := range l.Receive {
		arrived.Contents = append(arrived.Contents, ebpf.MapKV{
			Key:   uint32(i),
			Value: &Arrived{Ports: ports(t)},
		})
	}

	if device != 0 && len(l.Send) > 0 {
		spec.Maps["port"].Contents = []ebpf.MapKV{{Key: uint32(0), Value: uint32(device)}}
	}

	if err := spec.LoadAndAssign(&f.loaded, nil); err != nil {
		return nil, fmt.Errorf("load BPF program frames: %w", reason(err))
	}

	return f, nil
}

func (f *Frames) config() config {
	l := f.load
	p := f.pace
	c := config{
		Gap:   p.gap,
		Debt:  p.debt,
		Part:  p.part,
		Burst: p.burst,
		Stamp: p.stamp,
		Out:   uint32(len(l.Send)),
		In:    uint32(len(l.Receive)),
		IP:    uint8(l.IP),
		Base:  uint16(l.Base),
	}
	binary.BigEndian.PutUint32(c.Tag[:], l.Tag)
	if l.Shared {
		c.Shared = 1
	}

	for k, v := range l.variants() {
		c.Sums[k], c.Cut[k], c.Payload[k] = v.sum, uint16(l.PacketSize-v.size), uint16(v.size-l.overhead())
		copy(c.Lengths[k][:], v.head[ethernet+2:])
		if l.IP == 6 {
			copy(c.Lengths[k][:], v.head[ethernet+4:])
		}

		copy(c.Checks[k][:], v.head[ethernet+10:])
		copy(c.UDP[k][:], v.head[l.headers()-udp+4:])
		c.Sizes++
	}

	if len(l.Receive) > 0 {
		c.Sink = 1
		copy(c.From[:], l.Receive[0].From.Addr().AsSlice())
		copy(c.To[:], l.Receive[0].To.Addr().AsSlice())
	}

	return c
}

// start sets the state for the time before the timeline is known. In this state, no frame is due.
func (f *Frames) start() {
	s := &f.state
	s.Begin = 1<<63 - 1
	for i, t := range f.load.Send {
		b := f.load.frame(t)
		if i == 0 {
			f.first = b
			copy(s.Head[:], b)
		}

		// offset of the 8-byte word with the source port; for IPv6, the destination port is in Tail
		at := f.load.headers() - udp - 2
		if f.load.IP == 6 {
			at = 48
			copy(s.Flows[i].Tail[:], b[56:])
		}

		copy(s.Flows[i].Word[:], b[at:])
		s.Flows[i].Sum = f.load.constant(b)
	}
}

// Attach attaches the program to a device's driver, where it counts the frames of the load and passes all
// other packets on.
func (f *Frames) Attach(device int) (err error) {
	f.link, err = attach(f.loaded.Program, device)
	return err
}

// attach attaches an XDP program to a device's driver until the returned link is closed.
func attach(p *ebpf.Program, device int) (link.Link, error) {
	l, err := link.AttachXDP(link.XDPOptions{Program: p, Interface: device, Flags: link.XDPDriverMode})
	if err != nil {
		return nil, fmt.Errorf("attach a BPF program to device %d: %w", device, reason(err))
	}
	return l, nil
}

// Schedule sets the timeline. It must be called once, before Begin.
func (f *Frames) Schedule(t Timeline) error {
	s := &f.state
	s.Begin, s.Start, s.End, s.Stop = uint64(t.Begin), uint64(t.Start), uint64(t.End), uint64(t.Stop)
	s.Next, s.Slack = s.Begin, uint64(t.Slack)
	if err := f.enter(); err != nil {
		return fmt.Errorf("store the timeline in a BPF map: %w", err)
	}

	return nil
}

func (f *Frames) enter() error { return f.loaded.State.Put(uint32(0), &f.state) }

// Send sends frames according to the timeline, which may be set later, until Stop is called. It keeps a CPU
// busy throughout. The caller must have locked the goroutine to its thread.
//
// The kernel needs some time to begin. Starting a test run that transmits replaces the XDP dispatcher. The
// kernel then waits until all CPUs have passed a quiescent state (bpf_dispatcher_change_prog in
// kernel/bpf/dispatcher.c, synchronize_rcu). The wait took 7 to 24 ms on an idle machine, and 8 to 159 ms
// while another thread was already sending. See Runs.
func (f *Frames) Send() error {
	f.thread.Store(int64(unix.Gettid()))
	defer f.thread.Store(0)
	for !f.stop.Load() {
		if err := testRun(f.loaded.Program, f.first, once, f.pace.batch); err != nil && err != unix.EINTR {
			return fmt.Errorf("send BPF test-run frames: %w", reason(err))
		}
	}

	return nil
}

// Runs reports whether Send is ready to send frames when they are due. It may be called until Begin.
func (f *Frames) Runs() (bool, error) {
	s, err := f.read()
	return err == nil && s.Runs > 0, err
}

// Stop ends Send. The thread of Send is in a system call that only a signal interrupts. Stop uses SIGURG,
// which is harmless because Go's runtime itself sends it to threads.
func (f *Frames) Stop() {
	f.stop.Store(true)
	for {
		thread := f.thread.Load()
		if thread == 0 {
			return
		}

		unix.Tgkill(os.Getpid(), int(thread), unix.SIGURG)
		time.Sleep(200 * time.Microsecond)
	}
}

func (f *Frames) read() (*sending, error) {
	s := new(sending)
	if err := f.loaded.State.Lookup(uint32(0), s); err != nil {
		return nil, fmt.Errorf("read the counts of sent frames from a BPF map: %w", err)
	}
	return s, nil
}

// testRun makes the kernel run a program on a frame and transmit the result. The kernel repeats this the
// given number of times, or until a signal interrupts it. After a signal, testRun returns EINTR, whereas
// ebpf's Program.Run would start the run again.
func testRun(p *ebpf.Program, frame []byte, times, batch uint32) error {
	var pins runtime.Pinner // because attr holds the address as an integer, and Go moves stacks
	defer pins.Unpin()
	data := unsafe.SliceData(frame)
	pins.Pin(data)
	attr := struct { // argument of BPF_PROG_TEST_RUN, see include/uapi/linux/bpf.h
		program, result, sizeIn, sizeOut uint32
		in, out                          uint64
		repeat, duration, ctxIn, ctxOut  uint32
		ctxInAt, ctxOutAt                uint64
		flags, cpu, batch, _             uint32
	}{
		program: uint32(p.FD()),
		sizeIn:  uint32(len(frame)),
		in:      uint64(uintptr(unsafe.Pointer(data))),
		repeat:  times,
		flags:   unix.BPF_F_TEST_XDP_LIVE_FRAMES,
		batch:   batch,
	}
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_TEST_RUN, uintptr(unsafe.Pointer(&attr)),
		unsafe.Sizeof(attr))
	runtime.KeepAlive(p)
	if errno != 0 {
		return errno
	}

	return nil
}

// Sent reads the counts of sent frames so far.
func (f *Frames) Sent() (Sent, error) {
	s, err := f.read()
	if err != nil {
		return Sent{}, err
	}

	out := Sent{Began: s.Began, Late: int64(s.Late)}
	for i := range f.load.Send {
		out.Flows = append(out.Flows, [phases]uint32(s.Flows[i].Seq[:phases]))
	}

	return out, nil
}

// Arrived reads the counts of each received flow so far.
func (f *Frames) Arrived() ([]Arrived, error) {
	out := make([]Arrived, len(f.load.Receive))
	for i := range out {
		a := &out[i]
		if err := f.loaded.Arrived.Lookup(uint32(i), a); err != nil {
			return nil, fmt.Errorf("read the counts of received frames from a BPF map: %w", err)
		}

		if len(f.load.Sizes) < 2 {
			a.Bytes = a.Received * int64(f.load.PacketSize-f.load.overhead())
		}
	}
	return out, nil
}

// Delays reads the histogram of the transit times of frames with a time stamp, by bucket (see DelayBucket).
// The result early is the number of frames with a negative transit time. Such times are possible if the
// sender and the receiver have different clocks.
func (f *Frames) Delays() (buckets []int64, early int64, err error) {
	buckets = make([]int64, delayBuckets+1)
	if err := f.loaded.Delays.Lookup(uint32(0), buckets); err != nil {
		return nil, 0, fmt.Errorf("read delays from a BPF map: %w", err)
	}
	return buckets[:delayBuckets], buckets[delayBuckets], nil
}

// Close detaches the program from its device and releases all resources.
func (f *Frames) Close() (err error) {
	if f.link != nil {
		err = f.link.Close()
		f.link = nil
	}
	return errors.Join(err, f.loaded.Program.Close(), f.loaded.State.Close(), f.loaded.Arrived.Close(),
		f.loaded.Delays.Close())
}

// Pass attaches a program to a device until the returned link is closed. The program passes all packets. The
// device's peer in a veth pair can then transmit frames by XDP, because veth sets up the device's receive
// queues only for XDP or GRO.
func Pass(device int) (link.Link, error) {
	spec, err := specification()
	if err != nil {
		return nil, err
	}

	p, err := ebpf.NewProgram(spec.Programs["pass"])
	if err != nil {
		return nil, fmt.Errorf("load BPF program pass: %w", reason(err))
	}
	defer p.Close()
	return attach(p, device)
}

// Probe checks what this kernel can do. It returns the error of loading the programs as err, and the error of
// transmitting the frames of a test run as live.
func Probe() (live, err error) {
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 1)
	f, err := Open(Load{IP: 4, PacketSize: 46, Send: []Tuple{{at, at}}}, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// The test run transmits nothing: the program drops the frame, because it is not due yet.
	if live := testRun(f.loaded.Program, f.first, 1, 1); live != nil {
		return reason(fmt.Errorf("send BPF test-run frames: %w", live)), nil
	}

	return nil, nil
}

// reason wraps an error in ErrUnsupported if the error will recur every time. Other errors may be temporary.
func reason(err error) error {
	for _, never := range []error{ebpf.ErrNotSupported, unix.EOPNOTSUPP, unix.ENOSYS, unix.EINVAL} {
		if errors.Is(err, never) {
			return fmt.Errorf("%w (%w)", ErrUnsupported, err)
		}
	}
	return err
}
