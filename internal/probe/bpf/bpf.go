// Package bpf contains the kernel-side programs of the small-packet engine and loads them: frames are sent by
// the kernel's test run (BPF_PROG_TEST_RUN, Linux 5.18) and counted in the driver where they arrive.
// Everything that it makes is tied to descriptors of this process and ends with it.
package bpf

import (
	"encoding/binary"
	"errors"
	"math"
	"net"
	"net/netip"
)

//go:generate sh generate.sh

// ErrUnsupported means that something is conclusively impossible on this kernel, or with this device.
var ErrUnsupported = errors.New("not supported by this kernel")

// Bounds on a load.
const (
	MaxFlows = 1024 // in each direction
	Header   = 18   // bytes of UDP payload that every frame needs: see frame
	MaxSizes = 16   // that frames use in turn
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
	Tag        uint32 // distinguishes the load's frames from strays
	PacketSize int    // IP length, the largest if there are several
	// Sizes are the IP lengths that a flow's frames use in turn, by number: flow n begins with the n-th. nil
	// = only PacketSize.
	Sizes   []int
	DSCP    int
	Send    []Tuple
	Receive []Tuple
	Base    int              // index of the first of Send, as numbered by the receiver
	Source  net.HardwareAddr // of sent frames
	Next    net.HardwareAddr // their first hop
	PPS     float64          // over all sent flows; 0 = full rate
	Shared  bool             // the device has several receive queues
}

// Timeline are times of CLOCK_MONOTONIC, ns: frames of the warm-up are sent from Begin, of the window from
// Start to End, of the cool-down until Stop. With a Slack, a sender that starts late shifts all times by its
// delay, but by no more than Slack, and there is no cool-down.
type Timeline struct{ Begin, Start, End, Stop, Slack int64 }

// Sent counts what was given to the device so far.
type Sent struct {
	Flows [][phases]uint32 // used numbers, modulo 2^32
	Began [phases + 1]int64
	Late  int64 // ns, maximum lateness of a burst in the window of a paced load
}

// Arrived counts what has arrived of a flow so far. The counts from Received to Strange cover the window.
type Arrived struct {
	Next                                  uint64 // highest number seen + 1
	Received, Lost, Duplicates, Reordered int64
	Ancient                               int64 // too old to be recognised as a duplicate
	Strange                               int64 // damaged numbers
	Wrong                                 int64 // of another length, in all phases
	All                                   int64 // in all phases
	First, Last                           int64 // ns, when frames with a timestamp arrived
	Contended                             int64 // not counted, because two queues received one flow
	Bytes                                 int64 // payload of those received
}

// A frame: Ethernet, IP, UDP, then the tag (4 bytes), the number (4), the send time or zero (8), the phase (2
// bits) and the flow (14 bits); then a pattern. All in wire order.
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

// overhead returns the length of the headers of IP and UDP.
func (l Load) overhead() int { return l.headers() - ethernet }

// SizeOf returns the IP length of a flow's frame with that number in its phase.
func (l Load) SizeOf(flow int, seq uint32) int {
	if len(l.Sizes) == 0 {
		return l.PacketSize
	}
	return l.Sizes[(seq+uint32(flow))%uint32(len(l.Sizes))]
}

// variant describes the frames of one size: the headers, and what the size adds to the constant part of the
// checksum, which is computed for the largest size.
type variant struct {
	size int
	head []byte
	sum  uint32
}

func (l Load) variants() []variant {
	var of Tuple // depends only on addresses and ports
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

// frame returns the first frame of a flow, without its UDP checksum.
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

// constant returns the constant part of a frame's UDP checksum, in the machine's byte order, which does not
// matter for the sum (RFC 1071).
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

// Delays are counted in buckets of 1/32 of an octave; the first 64 are one nanosecond wide.
const delayBuckets = 1184

// DelayBucket returns the smallest delay, in ns, of the i-th bucket.
func DelayBucket(i int) int64 {
	if i < 64 {
		return int64(i)
	}

	octave := i/32 - 1
	return int64(i-octave*32) << octave
}

// A burst is sent without reading the clock.
const (
	maxBurst   = 8       // for a paced load: no router notices so short a burst
	burstRate  = 100_000 // per second: below, each frame is due separately
	stampEvery = 61      // a prime, so that every position in a burst and every flow gets one
	stampRate  = 100_000 // below, every frame has a timestamp
	maxDebt    = 15_000_000
	flatBatch  = 64
)

// pace is a rate in the program's form.
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

// BurstOf returns how many frames of a load with that rate, on one thread, are sent without reading the
// clock, and the distance between frames with a timestamp.
func BurstOf(pps float64) (frames, stamped int) {
	p := paceOf(pps)
	return int(p.burst), int(p.stamp)
}
