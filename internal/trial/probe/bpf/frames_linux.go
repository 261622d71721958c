package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Structures of frames.c. What is "net" there is bytes here.
type config struct {
	Gap, Debt                   uint64
	Part, Burst, Stamp, Out, In uint32
	Tag                         [4]byte
	From, To                    [16]byte
	Length                      [2]byte
	IP, Shared                  uint8
	Sink, Base                  uint16
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
	Turned                               [phases + 1]int64
	Next, Soon, Late, Slack              uint64
	Part, Phase, Left, Until, Flow, Runs uint32
	Flows                                [MaxFlows]outFlow
}

type arrivals struct {
	Next                                  uint64
	Received, Lost, Duplicates, Reordered int64
	Ancient, Strange, Wrong, All          int64
	First, Last                           int64
	Ports                                 [4]byte
	Lock                                  uint32
	Contended                             int64
}

const (
	arrivalsSize = 104
	seenSize     = 8 * 4096
	delaysSize   = 8 * (delayBuckets + 1)
	once         = 1 << 30 // times of one test run: until a signal comes
)

// Frames is a loaded load.
type Frames struct {
	load    Load
	pace    pace
	maps    map[string]int
	program int
	link    int // -1 = not attached
	state   sending
	first   []byte // frame

	stop   atomic.Bool
	thread atomic.Int64 // that sends; 0 = none
}

// Open loads the programs for a load. Frames leave by the device of that index in the caller's network
// namespace.
func Open(l Load, device int) (*Frames, error) {
	if l.Base+len(l.Send) > MaxFlows || len(l.Receive) > MaxFlows {
		return nil, fmt.Errorf("load frames of %d and %d flows: want at most %d", l.Base+len(l.Send),
			len(l.Receive), MaxFlows)
	}
	o, err := parseObject(compiled)
	if err != nil {
		return nil, err
	}
	f := &Frames{load: l, pace: paceOf(l.PPS), maps: map[string]int{}, program: -1, link: -1}
	if err := f.build(o, device); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (f *Frames) build(o *object, device int) error {
	in := uint32(max(len(f.load.Receive), 1))
	for name, m := range o.maps {
		switch name {
		case "arrived", "seen":
			m.Entries = in
		case ".rodata":
			m.data = f.config()
		case ".bss":
			m.data = f.start()
		}
		if m.data != nil && len(m.data) != int(m.Value) {
			return fmt.Errorf("fill BPF map %s: %d bytes for %d", name, len(m.data), m.Value)
		}
		fd, err := createMap(name, m)
		if err != nil {
			return err
		}
		f.maps[name] = fd
		if m.data != nil {
			if err := update(fd, 0, m.data); err != nil {
				return fmt.Errorf("fill BPF map %s: %w", name, err)
			}
		}
	}
	if err := freeze(f.maps[".rodata"]); err != nil {
		return fmt.Errorf("freeze BPF map .rodata: %w", reason(err))
	}
	for i, t := range f.load.Receive {
		a := arrivals{Ports: ports(t)}
		b, _ := binary.Append(nil, binary.NativeEndian, a)
		if err := update(f.maps["arrived"], uint32(i), b); err != nil {
			return fmt.Errorf("enter a flow in BPF map arrived: %w", err)
		}
	}
	if device != 0 && len(f.load.Send) > 0 {
		if err := update(f.maps["port"], 0, binary.NativeEndian.AppendUint32(nil,
			uint32(device))); err != nil {
			return fmt.Errorf("enter device %d in BPF map port: %w", device, reason(err))
		}
	}
	var err error
	f.program, err = loadProgram("frames", o.programs["xdp/frames"].link(f.maps))
	return err
}

func (f *Frames) config() []byte {
	l, p := f.load, f.pace
	c := config{Gap: p.gap, Debt: p.debt, Part: p.part, Burst: p.burst, Stamp: p.stamp,
		Out: uint32(len(l.Send)), In: uint32(len(l.Receive)), IP: uint8(l.IP), Base: uint16(l.Base)}
	binary.BigEndian.PutUint32(c.Tag[:], l.Tag)
	if l.Shared {
		c.Shared = 1
	}
	length := l.PacketSize
	if l.IP == 6 {
		length -= 40 // its field counts what follows the header
	}
	binary.BigEndian.PutUint16(c.Length[:], uint16(length))
	if len(l.Receive) > 0 {
		c.Sink = 1
		copy(c.From[:], l.Receive[0].From.Addr().AsSlice())
		copy(c.To[:], l.Receive[0].To.Addr().AsSlice())
	}
	b, _ := binary.Append(nil, binary.NativeEndian, c)
	return b
}

// start is the state before the first frame: none is due, ever.
func (f *Frames) start() []byte {
	s := &f.state
	s.Begin = 1<<63 - 1
	for i, t := range f.load.Send {
		b := f.load.frame(t)
		if i == 0 {
			f.first = b
			copy(s.Head[:], b)
		}
		at := f.load.headers() - udp - 2 // where a word begins that ends with, or holds, the ports
		if f.load.IP == 6 {
			at = 48
			copy(s.Flows[i].Tail[:], b[56:])
		}
		copy(s.Flows[i].Word[:], b[at:])
		s.Flows[i].Sum = f.load.constant(b)
	}
	return f.bytes()
}

func (f *Frames) bytes() []byte {
	b, _ := binary.Append(nil, binary.NativeEndian, &f.state)
	return b
}

// Attach lets the device's driver run the program: frames that arrive are counted there, all else passes.
func (f *Frames) Attach(device int) (err error) {
	f.link, err = attach(f.program, device)
	return err
}

// Schedule sets the timeline, by which Send makes frames. It must be set before Begin, and once.
func (f *Frames) Schedule(t Timeline) error {
	s := &f.state
	s.Begin, s.Start, s.End, s.Stop = uint64(t.Begin), uint64(t.Start), uint64(t.End), uint64(t.Stop)
	s.Next, s.Slack = s.Begin, uint64(t.Slack)
	if err := update(f.maps[".bss"], 0, f.bytes()); err != nil {
		return fmt.Errorf("enter the timeline in a BPF map: %w", err)
	}
	return nil
}

// Send makes frames until Stop is called: none until the timeline is set, which may be later, and none
// after it. It keeps its thread busy throughout, which must be the caller's own.
//
// It takes the kernel a while to begin, because a test run of live frames has the XDP dispatcher changed,
// which waits for all cores to have left what they do (bpf_dispatcher_change_prog of
// kernel/bpf/dispatcher.c, synchronize_rcu): 7 to 24 ms on an idle machine, and 8 to 159 beside a thread
// that sends already. See Runs.
func (f *Frames) Send() error {
	f.thread.Store(int64(unix.Gettid()))
	defer f.thread.Store(0)
	for !f.stop.Load() {
		if err := testRun(f.program, f.first, once, f.pace.batch); err != nil && err != unix.EINTR {
			return fmt.Errorf("send live frames: %w", reason(err))
		}
	}
	return nil
}

// Runs says whether Send has begun, and would make frames if any were due. It may be asked until Begin.
func (f *Frames) Runs() (bool, error) {
	s, err := f.read()
	return err == nil && s.Runs > 0, err
}

// Stop ends Send. Its thread is in the kernel, which only a signal ends; one that Go uses for itself does
// no harm.
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

func (f *Frames) read() (s sending, err error) {
	b := make([]byte, binary.Size(&f.state))
	if err := lookup(f.maps[".bss"], 0, b); err != nil {
		return s, fmt.Errorf("read what was sent from a BPF map: %w", err)
	}
	_, err = binary.Decode(b, binary.NativeEndian, &s)
	return s, err
}

// Sent reads what was sent so far.
func (f *Frames) Sent() (Sent, error) {
	s, err := f.read()
	if err != nil {
		return Sent{}, err
	}
	out := Sent{Turned: s.Turned, Late: int64(s.Late)}
	for i := range f.load.Send {
		out.Flows = append(out.Flows, [phases]uint32(s.Flows[i].Seq[:phases]))
	}
	return out, nil
}

// Arrived reads what was counted so far of each flow received.
func (f *Frames) Arrived() ([]Arrived, error) {
	var out []Arrived
	b := make([]byte, arrivalsSize)
	for i := range f.load.Receive {
		if err := lookup(f.maps["arrived"], uint32(i), b); err != nil {
			return nil, fmt.Errorf("read what arrived from a BPF map: %w", err)
		}
		var a arrivals
		if _, err := binary.Decode(b, binary.NativeEndian, &a); err != nil {
			return nil, err
		}
		out = append(out, Arrived{Next: a.Next, Received: a.Received, Lost: a.Lost, Duplicates: a.Duplicates,
			Reordered: a.Reordered, Ancient: a.Ancient, Strange: a.Strange, Wrong: a.Wrong, All: a.All,
			First: a.First, Last: a.Last, Contended: a.Contended})
	}
	return out, nil
}

// Delays reads how long the frames that have a time were on their way, by bucket (see DelayBucket), and how
// many came before they were sent: with two clocks that is possible.
func (f *Frames) Delays() (buckets []int64, early int64, err error) {
	b := make([]byte, delaysSize)
	if err := lookup(f.maps["delays"], 0, b); err != nil {
		return nil, 0, fmt.Errorf("read delays from a BPF map: %w", err)
	}
	buckets = make([]int64, delayBuckets+1)
	if _, err := binary.Decode(b, binary.NativeEndian, buckets); err != nil {
		return nil, 0, err
	}
	return buckets[:delayBuckets], buckets[delayBuckets], nil
}

// Burst is how many frames follow each other without a look at the clock, and every how many have a time.
func (f *Frames) Burst() (frames, stamped int) { return int(f.pace.burst), int(f.pace.stamp) }

// Close takes the program from its device and gives everything back.
func (f *Frames) Close() error {
	var errs []error
	fds := []*int{&f.link, &f.program}
	for _, fd := range fds {
		if *fd >= 0 {
			errs = append(errs, unix.Close(*fd))
			*fd = -1
		}
	}
	for name, fd := range f.maps {
		errs = append(errs, unix.Close(fd))
		delete(f.maps, name)
	}
	return errors.Join(errs...)
}

// Pass gives a device a program that lets everything pass: the other end of a virtual link then takes
// frames (veth has its receive queues only where a program or GRO wants them). Close takes it away.
func Pass(device int) (*Frames, error) {
	o, err := parseObject(compiled)
	if err != nil {
		return nil, err
	}
	f := &Frames{program: -1, link: -1}
	if f.program, err = loadProgram("pass", o.programs["xdp/pass"].link(nil)); err == nil {
		err = f.Attach(device)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Probe tries whether programs can be loaded (err) and whether this kernel sends frames of a test run
// (live).
func Probe() (live, err error) {
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 1)
	f, err := Open(Load{IP: 4, PacketSize: 46, Send: []Tuple{{at, at}}}, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// None is due yet, so that the frame is dropped.
	if live := testRun(f.program, f.first, 1, 1); live != nil {
		return reason(fmt.Errorf("send live frames: %w", live)), nil
	}
	return nil, nil
}
