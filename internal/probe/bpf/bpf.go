// Package bpf holds the kernel-side programs of the small-packet engine and loads them: frames that the
// kernel's test run sends (BPF_PROG_TEST_RUN, Linux 5.18) and that are counted in the driver where they
// arrive. Whatever it makes hangs on descriptors of this process and ends with it.
package bpf

import (
	"encoding/binary"
	"errors"
	"math"
	"net"
	"net/netip"
)

//go:generate sh generate.sh

// ErrUnsupported means conclusively impossible on this kernel, or with this device.
var ErrUnsupported = errors.New("not supported by this kernel")

// Bounds of a load.
const (
	MaxFlows = 1024 // in each direction
	Header   = 18   // bytes of UDP payload that every frame needs: see frame
	MaxSizes = 16   // that frames have in turn
)

// Phases of a load. A frame's number counts within its phase and flow.
const (
	Warmup = iota
	Window
	Cooldown
	phases
)

// Tuple holds the addresses and ports of a flow's frames.
type Tuple struct{ From, To netip.AddrPort }

// Load describes what one end sends and receives. All flows share both addresses.
type Load struct {
	IP         int    // 4 or 6
	Tag        uint32 // tells the load's frames from strays
	PacketSize int    // IP length, the largest where there are several
	// Sizes are the IP lengths that a flow's frames have in turn, by number: flow n begins with the n-th. nil
	// = PacketSize alone.
	Sizes   []int
	DSCP    int
	Send    []Tuple
	Receive []Tuple
	Base    int              // the first of Send, as the receiver numbers them
	Source  net.HardwareAddr // of frames sent
	Next    net.HardwareAddr // where they go first
	PPS     float64          // of all flows sent; 0 = flat out
	Shared  bool             // the device has several receive queues
}

// Timeline are times of CLOCK_MONOTONIC, ns: frames of the warm-up are sent from Begin, of the window from
// Start to End, of the cool-down until Stop. With a Slack, a sender that has its turn only after Begin
// moves all by that, but by no more than Slack, and there is no cool-down.
type Timeline struct{ Begin, Start, End, Stop, Slack int64 }

// Sent counts what was handed to the device so far.
type Sent struct {
	Flows [][phases]uint32 // numbers used; they count modulo 2^32
	Began [phases + 1]int64
	Late  int64 // ns, the most that a burst of the window was, of a paced load
}

// Arrived counts what has arrived of a flow so far. The counts from Received to Strange are of the window.
type Arrived struct {
	Next                                  uint64 // highest number seen + 1
	Received, Lost, Duplicates, Reordered int64
	Ancient                               int64 // too old to be told from a duplicate
	Strange                               int64 // damaged numbers
	Wrong                                 int64 // of another length, in all phases
	All                                   int64 // of all phases
	First, Last                           int64 // ns, when frames that have a time arrived
	Contended                             int64 // not counted, because two queues brought one flow
	Bytes                                 int64 // of payload, of those received
}

// A frame: Ethernet, IP, UDP, then the tag (4 bytes), the number (4), the time it was sent or zero (8), the
// phase (2 bits) and the flow (14 bits); then a pattern. All in the order of the wire.
const (
	ethernet = 14
	udp      = 8
)

func (l Load) headers() int {
	if l.IP == 6 {
		return ethernet + 40 + udp
	}
	return ethernet + 20 + udp
}

// overhead are the headers of IP and UDP.
func (l Load) overhead() int { return l.headers() - ethernet }

// SizeOf is the IP length of a flow's frame of that number in its phase.
func (l Load) SizeOf(flow int, seq uint32) int {
	if len(l.Sizes) == 0 {
		return l.PacketSize
	}
	return l.Sizes[(seq+uint32(flow))%uint32(len(l.Sizes))]
}

// variant describes the frames of one size: the headers, and what the size adds to the constant part of the
// check sum, which is that of the largest.
type variant struct {
	size int
	head []byte
	sum  uint32
}

func (l Load) variants() []variant {
	var of Tuple // only addresses and ports hang on it
	switch {
	case len(l.Send) > 0:
		of = l.Send[0]
	case len(l.Receive) > 0:
		of = l.Receive[0]
	}

	sizes := l.Sizes
	if sizes == nil {
		sizes = []int{l.PacketSize}
	}

	largest := l.constant(l.frame(of))
	var out []variant
	for _, n := range sizes {
		one := l
		one.PacketSize = n
		b := one.frame(of)
		out = append(out, variant{n, b[:l.headers()],
			uint32(fold(uint64(l.constant(b)) + uint64(^uint16(largest))))})
	}

	return out
}

// frame is the first frame of a flow, without its check sum of UDP.
func (l Load) frame(t Tuple) []byte {
	b := make([]byte, ethernet+l.PacketSize)
	copy(b, l.Next)
	copy(b[6:], l.Source)
	ip := b[ethernet:]
	payload := b[l.headers():]
	if l.IP == 6 {
		binary.BigEndian.PutUint16(b[12:], 0x86dd)
		ip[0], ip[1], ip[6], ip[7] = 6<<4|byte(l.DSCP>>2), byte(l.DSCP<<6), 17, 64
		binary.BigEndian.PutUint16(ip[4:], uint16(l.PacketSize-40))
		copy(ip[8:], t.From.Addr().AsSlice())
		copy(ip[24:], t.To.Addr().AsSlice())
	} else {
		binary.BigEndian.PutUint16(b[12:], 0x0800)
		ip[0], ip[1], ip[6], ip[8], ip[9] = 0x45, byte(l.DSCP<<2), 0x40, 64, 17 // do not fragment
		binary.BigEndian.PutUint16(ip[2:], uint16(l.PacketSize))
		copy(ip[12:], t.From.Addr().AsSlice())
		copy(ip[16:], t.To.Addr().AsSlice())
		binary.NativeEndian.PutUint16(ip[10:], ^fold(sum(ip[:20])))
	}

	header := b[l.headers()-udp:]
	binary.BigEndian.PutUint16(header, t.From.Port())
	binary.BigEndian.PutUint16(header[2:], t.To.Port())
	binary.BigEndian.PutUint16(header[4:], uint16(udp+len(payload)))
	binary.BigEndian.PutUint32(payload, l.Tag)
	for i := Header; i < len(payload); i++ {
		payload[i] = byte(i)
	}

	return b
}

// constant is the part of a frame's UDP check sum that does not change, in the machine's byte order, which
// does not matter to the sum (RFC 1071).
func (l Load) constant(frame []byte) uint32 {
	addresses := frame[ethernet+12 : ethernet+20]
	if l.IP == 6 {
		addresses = frame[ethernet+8 : ethernet+40]
	}

	datagram := frame[l.headers()-udp:]
	pseudo := append([]byte{0, 17}, datagram[4:6]...)
	return uint32(fold(sum(addresses) + sum(pseudo) + sum(datagram)))
}

// sum adds the 16-bit words of b.
func sum(b []byte) uint64 {
	var s uint64
	for ; len(b) > 1; b = b[2:] {
		s += uint64(binary.NativeEndian.Uint16(b))
	}

	if len(b) > 0 {
		s += uint64(binary.NativeEndian.Uint16([]byte{b[0], 0}))
	}

	return s
}

func fold(s uint64) uint16 {
	for s > 0xffff {
		s = s&0xffff + s>>16
	}
	return uint16(s)
}

// Delays are counted in buckets of 1/32 of an octave; the first 64 are of one nanosecond.
const delayBuckets = 1184

// DelayBucket is the least delay, in ns, of the i-th bucket.
func DelayBucket(i int) int64 {
	if i < 64 {
		return int64(i)
	}

	octave := i/32 - 1
	return int64(i-octave*32) << octave
}

// A burst is what is sent without reading the clock.
const (
	maxBurst   = 8       // of a paced load: so short a burst no router notices
	burstRate  = 100_000 // per second: below, each frame is due by itself
	stampEvery = 61      // a prime, so that every place in a burst and every flow has its turn
	stampRate  = 100_000 // below, every frame has its time
	maxDebt    = 15_000_000
	flatBatch  = 64
)

// pace is a rate as the program counts it.
type pace struct {
	gap, debt    uint64 // ns
	part         uint32 // of a nanosecond
	burst, stamp uint32
	batch        uint32 // frames that the kernel makes together
}

func paceOf(pps float64) pace {
	if pps <= 0 {
		return pace{burst: stampEvery, stamp: stampEvery, batch: flatBatch}
	}

	p := pace{debt: maxDebt, stamp: stampEvery}
	p.burst = uint32(min(max(pps/burstRate, 1), maxBurst))
	p.batch = p.burst
	gap := float64(p.burst) / pps * 1e9
	whole := math.Floor(gap)
	p.gap, p.part = uint64(whole), uint32((gap-whole)*(1<<32))
	if pps <= stampRate {
		p.stamp = 1
	}

	return p
}

// BurstOf returns how many frames of a load of that rate, of one thread, follow each other without reading
// the clock, and every how many have a time.
func BurstOf(pps float64) (frames, stamped int) {
	p := paceOf(pps)
	return int(p.burst), int(p.stamp)
}
