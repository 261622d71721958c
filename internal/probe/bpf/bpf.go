// Package bpf loads the BPF programs of the small-packet engine. The kernel's test run (BPF_PROG_TEST_RUN,
// since Linux 5.18) sends the frames, and a program in the driver of the receiving device counts them. All
// kernel objects belong to file descriptors of this process and vanish when it ends.
package bpf

import (
	"encoding/binary"
	"errors"
	"math"
	"net"
	"net/netip"
)

//go:generate sh generate.sh

// ErrUnsupported means that this kernel or device certainly lacks a feature.
var ErrUnsupported = errors.New("not supported by this kernel")

// Limits of a load.
const (
	MaxFlows = 1024 // number of flows in each direction
	Header   = 18   // minimum UDP payload of a frame, in bytes; see frame
	MaxSizes = 16   // number of packet sizes that frames alternate between
)

// Phases of a load. Frames are numbered separately in each phase and flow.
const (
	Warmup = iota
	Window
	Cooldown
	phases
)

// Tuple holds the addresses and ports of a flow.
type Tuple struct{ From, To netip.AddrPort }

// Load describes what one endpoint sends and receives. All flows have the same pair of addresses.
type Load struct {
	IP         int    // 4 or 6
	Tag        uint32 // distinguishes frames of this load from others
	PacketSize int    // IP length in bytes; the largest of Sizes
	// Sizes lists the IP lengths that the frames of a flow alternate between. Frame i of flow n has the
	// length at index n+i, modulo the number of sizes. If Sizes is nil, all frames have the length
	// PacketSize.
	Sizes   []int
	DSCP    int
	Send    []Tuple
	Receive []Tuple
	Base    int              // index of Send[0] in the receiver's numbering of flows
	Source  net.HardwareAddr // source address of sent frames
	Next    net.HardwareAddr // address of the next hop
	PPS     float64          // packets per second of all sent flows together; 0 means full rate
	Shared  bool             // the device has several receive queues
}

// Timeline holds times in nanoseconds of CLOCK_MONOTONIC. Frames of the warm-up are sent from Begin to Start,
// frames of the window from Start to End, and frames of the cool-down from End to Stop. If Slack is set, a
// sender that starts late shifts all times by its delay, but by no more than Slack, and there is no
// cool-down.
type Timeline struct{ Begin, Start, End, Stop, Slack int64 }

// Sent holds the counts of frames passed to the device so far.
type Sent struct {
	Flows [][phases]uint32 // next frame number by phase, modulo 2^32
	Began [phases + 1]int64
	Late  int64 // maximum delay of a burst in the window of a paced load, in ns
}

// Arrived holds the counts of frames received so far in a flow, as struct arrivals in frames.c does. Wrong
// and All cover all phases. All other counts cover only the window.
type Arrived struct {
	Next                                  uint64 // highest number received + 1
	Received, Lost, Duplicates, Reordered int64
	Ancient                               int64   // frames too old for duplicates to be recognised
	Strange                               int64   // frames with a damaged number
	Wrong                                 int64   // frames of wrong length, in all phases
	All                                   int64   // frames in all phases
	First, Last                           int64   // first and last arrival of a stamped frame, in ns
	Ports                                 [4]byte // of the flow, in network byte order
	Lock                                  uint32  // of the BPF program
	Contended                             int64   // frames not counted: two queues received the flow at once
	Bytes                                 int64   // UDP payload of Received
}

// A frame consists of Ethernet, IP and UDP headers, tag (4 bytes), number (4), send time or zero (8),
// phase (2 bits) and flow (14 bits), then a pattern. All fields are in network byte order.
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

// overhead returns the length of the IP and UDP headers in bytes.
func (l Load) overhead() int { return l.headers() - ethernet }

// variant describes the frames of one size. It holds their headers, and the difference between their checksum
// and the checksum of the largest size.
type variant struct {
	size int
	head []byte
	sum  uint32
}

func (l Load) variants() []variant {
	var of Tuple // any flow will do, because sizes are the same for all flows
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

// frame returns the first frame of a flow, with UDP checksum 0.
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
		ip[0], ip[1], ip[6], ip[8], ip[9] = 0x45, byte(l.DSCP<<2), 0x40, 64, 17 // don't fragment
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

// constant returns the sum of all constant words in a frame's UDP checksum, in native byte order. The byte
// order does not affect the result (RFC 1071).
func (l Load) constant(frame []byte) uint32 {
	addresses := frame[ethernet+12 : ethernet+20]
	if l.IP == 6 {
		addresses = frame[ethernet+8 : ethernet+40]
	}

	datagram := frame[l.headers()-udp:]
	pseudo := append([]byte{0, 17}, datagram[4:6]...)
	return uint32(fold(sum(addresses) + sum(pseudo) + sum(datagram)))
}

// sum adds the 16-bit words of b, without folding.
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

// Delays are counted in buckets of 1/32 octave. The first 64 buckets are one nanosecond wide.
const delayBuckets = 1184

// DelayBucket returns the lower bound of bucket i, in nanoseconds.
func DelayBucket(i int) int64 {
	if i < 64 {
		return int64(i)
	}

	octave := i/32 - 1
	return int64(i-octave*32) << octave
}

// A burst is a number of frames that a thread sends without reading the clock in between.
const (
	maxBurst   = 8       // for a paced load; short enough not to matter to a router
	burstRate  = 100_000 // packets/s; below this rate, each frame is scheduled separately
	stampEvery = 61      // prime, so that time stamps reach every flow and every position in a burst
	stampRate  = 100_000 // packets/s; below this rate, every frame has a time stamp
	maxDebt    = 15_000_000
	flatBatch  = 64
)

// pace holds a rate in the form that the BPF program needs.
type pace struct {
	gap, debt    uint64 // ns
	part         uint32 // fractional part of the gap, in ns/2^32
	burst, stamp uint32
	batch        uint32 // frames per batch of the kernel's test run
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

// BurstOf returns the number of frames that one thread sends without reading the clock, and the number of
// frames from one time stamp to the next. The thread's rate is pps; 0 means full rate.
func BurstOf(pps float64) (frames, stamped int) {
	p := paceOf(pps)
	return int(p.burst), int(p.stamp)
}
