package traffic

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Batch sizes and waits of ENGINE.md, section 2: a receiver that polls by a timer instead of being woken
// for every packet costs the sender no wake-ups.
const (
	receiveBatch = 512
	receivePoll  = 300 * time.Microsecond
	// of a receiver with ample room; saves a tenth of all cost of two flows flat out
	amplePoll   = time.Millisecond
	ampleRoom   = 16 << 20
	edgeTime    = 10 * time.Millisecond
	receiveRoom = 64 << 20 // bytes of socket buffer asked for
	leastRoom   = 256 << 10
	sendRoom    = 4 << 20
	sendTimeout = 50 * time.Millisecond // until a full buffer lets go to look at the time
	afterlife   = 10 * time.Millisecond // in which a packet may arrive that the farewell has overtaken
	backlogTime = time.Second           // for reading what has arrived by the end, at most
)

// udpFlow is one end of a stream of datagrams.
type udpFlow struct {
	socket          // of its own; closed from the start where it shares a door
	door    *door   // shared with other flows of the listener, or nil
	to      *peer   // where to send through the door
	drops   *socket // whose drops this flow reports, or nil
	key     flowKey
	index   uint16
	sends   bool
	verify  bool
	count   bool // by length: several datagrams may come as one
	tag     uint32
	pattern pattern
	addr    string
	payload int // bytes of each datagram, or of the largest
	size    int // its IP length
	sizes   sizes
	train   train
	rcvbuf  int
	sndbuf  int

	packets atomic.Int64 // moved in all phases
	bytes   atomic.Int64

	// Owned by the crew.
	seq        uint64 // sender: of the next datagram in this phase
	moved      int64  // receiver: packets before they are made known
	movedBytes int64
	arrived    int64 // bytes of the window's, without duplicates
	sequence   sequence
	delays     delays
	unstamped  int64
	announced  int64
	heard      int64 // when the first farewell arrived; 0 = not yet
	sent       int64 // in the window
	unsent     int64
	from, till int64 // of the window as this end saw it
	wrong      int64 // datagrams of another size
	corrupt    int64
	verified   int64

	// Owned by the meter until run has ended.
	table   *record.Table
	dropped [2]uint32 // by the socket, at the edges
}

// newUDPFlow makes one end of a flow; fd is -1 where it shares a door.
func newUDPFlow(fd int, q request, i int, k flowKey, flows int) *udpFlow {
	size := slices.Max(q.Load.PacketSizes())
	f := &udpFlow{
		key: k, index: uint16(i), sends: k.sends(q.Side), verify: q.Load.Verify, count: counts(q.Load),
		tag: tagHash(q.Load.Tag), pattern: newPattern(q.Load.Tag, i),
		payload: size - packetOverhead(q.Load.IP), size: size, sizes: sizesOf(q.Load, i), announced: -1,
		table: record.NewTable("bytes", "packets"),
	}
	if !f.sends && !f.count {
		f.sequence = newSequence(memoryOf(flows))
	}
	if fd < 0 {
		f.closed = true
		return f
	}
	f.fd, f.drops = fd, &f.socket
	f.rcvbuf, f.sndbuf = udpRoom(&f.socket, flows)
	f.addr = f.local()
	return f
}

// udpRoom asks for large buffers; many flows share what one has.
func udpRoom(s *socket, flows int) (rcvbuf, sndbuf int) {
	rcvbuf = bigBuffer(s, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, max(receiveRoom/max(flows/ownThreads, 1),
		leastRoom))
	sndbuf = bigBuffer(s, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, sendRoom)
	tv := unix.NsecToTimeval(int64(sendTimeout))
	unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv)
	return rcvbuf, sndbuf
}

// through is the descriptor that the flow sends through.
func (f *udpFlow) through() int {
	if f.door != nil {
		return f.door.fd
	}
	return f.fd
}

// unblock does nothing: neither end ever blocks for longer than a glance.
func (f *udpFlow) unblock(urgency) {}

func (f *udpFlow) sample(at int64, e edge) {
	f.table.Append(at, float64(f.bytes.Load()), float64(f.packets.Load()))
	if e != noEdge && f.drops != nil {
		f.dropped[e-startEdge] = f.drops.socketDrops()
	}
}

// socketDrops is what a socket threw away because its buffer was full (SK_MEMINFO_DROPS, kernel 4.12).
func (s *socket) socketDrops() uint32 {
	const memInfo, drops = 9, 8
	var v [memInfo]uint32
	size := uint32(unsafe.Sizeof(v))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(s.fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&v)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0
	}
	return v[drops]
}

func (f *udpFlow) received() (bytes, packets int64) {
	if f.sends {
		return 0, 0
	}
	return f.bytes.Load(), f.packets.Load()
}

func (f *udpFlow) report() flowReport {
	r := flowReport{Sends: f.sends, Addr: f.addr, Table: f.table, Ns: f.till - f.from}
	if f.sends {
		r.Sent, r.Bytes, r.Unsent = f.sent, f.sizes.bytes(uint64(f.sent)), f.unsent
		return r
	}
	r.Bytes, r.Verified, r.Corrupt = f.arrived, f.verified, f.corrupt
	if f.count {
		// What is lost only the sender's count can tell.
		r.Received, r.Highest, r.Announced = f.sequence.received, f.sequence.received, -1
		return r
	}
	r.Announced = f.announced
	if f.announced >= 0 && !f.sequence.finish(uint64(f.announced)) {
		r.Announced = -1 // contradicts what arrived; the sender's count will show it
	}
	if r.Announced < 0 {
		f.sequence.finish(f.sequence.next)
	}
	r.Highest = int64(f.sequence.next)
	r.Received, r.Lost = f.sequence.received, f.sequence.lost
	r.Duplicates, r.Reordered = f.sequence.duplicates, f.sequence.reordered
	r.Gaps = f.sequence.gaps.list()
	stamps := "kernel"
	if f.unstamped > 0 {
		stamps = "user"
	}
	r.Delay = f.delays.variation(stamps)
	return r
}

// notes are this flow's facts for the record.
func (f *udpFlow) notes() map[string]int64 {
	if f.sends {
		return nil
	}
	return map[string]int64{
		"socket_drops":    int64(f.dropped[1] - f.dropped[0]),
		"stray_packets":   f.wrong + f.sequence.strange,
		"ancient_packets": f.sequence.ancient,
	}
}

func (f *udpFlow) name() string { return fmt.Sprintf("stream %d %s", f.key.Stream, f.key.Direction) }
