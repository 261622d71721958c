package stream

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// After the window, end-of-stream messages inform the receiver how many packets were sent. The following
// constants are the times and the minimum number of these messages.
const (
	afterlife   = 10 * time.Millisecond // time for packets that the end-of-stream message has overtaken
	endInterval = 2 * time.Millisecond
	minEnds     = 5
)

// udpCount holds the counts of one end of a UDP flow. It does not depend on how datagrams are sent or
// received.
type udpCount struct {
	traffic.ByteFlow // Count and packets cover all phases
	packets          atomic.Int64
	index            uint16
	verify           bool
	count            bool // count mode: several datagrams may arrive as one
	tag              uint32
	pattern          traffic.Pattern
	payload          int // payload in bytes of each datagram, or of the largest one
	size             int // IP length of that datagram
	sizes            traffic.Sizes

	// The following fields belong to the worker.
	seq        uint64 // sender: next number in this phase
	moved      int64  // receiver: number of packets received and not yet published
	movedBytes int64
	arrived    int64 // number of bytes received in the window, without duplicates
	sequence   traffic.Sequence
	delays     delays
	unstamped  int64
	announced  int64
	endSeen    int64 // arrival time of the first end-of-stream message, or 0
	sent       int64 // number of packets sent in the window
	unsent     int64
	burst      int64 // maximum number of bytes that the thread sent back to back
	from, till int64 // start and end of the window, as seen by this end
	wrong      int64 // number of datagrams with a wrong size
	corrupt    int64
	verified   int64
}

// open initialises the counts of a flow.
func (f *udpCount) open(q traffic.Request, i int, k traffic.FlowKey, flows int) {
	f.Key, f.index, f.Sends, f.verify = k, uint16(i), k.Sends(q.Side), q.Load.Verify
	f.count, f.tag = traffic.Counts(q.Load), traffic.TagHash(traffic.TagData, q.Load.Tag)
	f.pattern, f.sizes = traffic.NewPattern(q.Load.Tag, i), traffic.SizesOf(q.Load, i)
	f.size = slices.Max(q.Load.PacketSizes())
	f.payload = f.size - traffic.PacketOverhead(q.Load.IP)
	f.announced, f.Table = -1, record.NewTable("bytes", "packets")
	if !f.Sends && !f.count {
		f.sequence = traffic.NewSequence(traffic.MemoryOf(flows))
	}
}

// over reports whether the sender has ended the stream, so that no more packets will arrive.
func (f *udpCount) over(now int64) bool { return f.endSeen != 0 && now >= f.endSeen+int64(afterlife) }

func (f *udpCount) Sample(at int64, _ traffic.Edge) {
	f.Table.Append(at, float64(f.Count.Load()), float64(f.packets.Load()))
}

func (f *udpCount) Received() (bytes, packets int64) {
	if f.Sends {
		return 0, 0
	}
	return f.Count.Load(), f.packets.Load()
}

func (f *udpCount) Report() traffic.FlowReport {
	r := traffic.FlowReport{Sends: f.Sends, Addr: f.Addr, Table: f.Table, Ns: f.till - f.from}
	if f.Sends {
		r.Sent, r.Bytes, r.Unsent = f.sent, f.sizes.Bytes(uint64(f.sent)), f.unsent
		if f.burst > 0 {
			r.Notes = map[string]int64{"burst_most_bytes": f.burst}
		}
		return r
	}

	r.Bytes = f.arrived
	r.Verified = f.verified
	r.Corrupt = f.corrupt
	r.Notes = map[string]int64{"stray_packets": f.wrong + f.sequence.Strange,
		"ancient_packets": f.sequence.Ancient}
	if f.count {
		// Losses can only be computed from the sender's count.
		r.Received, r.Highest, r.Announced = f.sequence.Received, f.sequence.Received, -1
		return r
	}

	r.Announced = f.announced
	if f.announced >= 0 && !f.sequence.Finish(uint64(f.announced)) {
		r.Announced = -1 // the announced number is wrong, so the sender's count decides
	}

	if r.Announced < 0 {
		f.sequence.Finish(f.sequence.Next)
	}

	r.Packets, r.Highest = f.sequence.Packets(), int64(f.sequence.Next)
	stamps := "kernel"
	if f.unstamped > 0 {
		stamps = "user"
	}

	r.Delay = f.delays.variation(stamps)
	return r
}

// tell publishes the current counts.
func (f *udpCount) tell() {
	f.packets.Store(f.moved)
	f.Count.Store(f.movedBytes)
}

// take counts a datagram or, in count mode, a batch of datagrams with the given total length. b holds the
// header; if content is verified, it holds the whole datagram. now is the time at which the datagram was
// read, and stamp is the kernel's time stamp (CLOCK_REALTIME), or 0 if unknown.
func (f *udpCount) take(b []byte, length int, d traffic.Datagram, now, stamp int64) {
	many := 1
	each := f.sizes.Of(d.Seq)
	if f.count {
		many = length / each
	}

	if many == 0 || length != many*each {
		f.wrong++
		return
	}

	f.moved += int64(many)
	f.movedBytes += int64(length)
	switch d.Phase {
	case traffic.PhaseWindow:
		if f.from == 0 {
			f.from = now
		}

		f.till = now
		if f.count {
			f.sequence.Received += int64(many)
			f.arrived += int64(length)
			return
		}

		if f.sequence.See(d.Seq) {
			f.arrived += int64(length)
		}

		if stamp == 0 {
			f.unstamped++
			stamp = time.Now().UnixNano()
		}

		f.delays.see(d.Tick, stamp)
	case traffic.PhaseCooldown:
		f.announced = int64(d.Seq)
		if f.endSeen == 0 {
			f.endSeen = now
		}
	}

	if f.verify {
		bad := f.pattern.Mismatches(b[traffic.DatagramHeader:length],
			traffic.DatagramPosition(d.Phase, d.Seq))
		f.corrupt += bad
		f.verified += int64(length-traffic.DatagramHeader) - bad
	}
}

// put builds a datagram in b and returns it. b must have space for the largest datagram.
func (f *udpCount) put(b []byte, phase traffic.Phase, seq uint64, tick uint32) []byte {
	b = b[:f.sizes.Of(seq)]
	traffic.Datagram{Tag: f.tag, Flow: f.index, Phase: phase, Seq: seq, Tick: tick}.Put(b)
	if f.verify {
		f.pattern.Fill(b[traffic.DatagramHeader:], traffic.DatagramPosition(phase, seq))
	}

	return b
}

// explainSize returns the error for a failed send. EMSGSIZE means that the packet exceeds the path's MTU.
func explainSize(err error, size int) error {
	if errors.Is(err, syscall.EMSGSIZE) {
		return check.WithHint(fmt.Errorf("send %d-byte packets: larger than the path's MTU", size),
			"choose a smaller packet_size or a larger mtu")
	}
	return fmt.Errorf("send %d-byte packets: %w", size, err)
}
