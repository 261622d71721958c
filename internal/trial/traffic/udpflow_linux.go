package traffic

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Batch sizes and waits of ENGINE.md, section 2: a receiver that polls by a
// timer instead of being woken for every packet costs the sender no wake-ups.
const (
	receiveBatch = 512
	receivePoll  = 300 * time.Microsecond
	receiveRoom  = 64 << 20 // bytes of socket buffer asked for
	sendRoom     = 4 << 20
	sendTimeout  = 50 * time.Millisecond // until a full buffer lets go to look at the time
	afterlife    = 10 * time.Millisecond // in which a packet may arrive that the farewell has overtaken
	backlogTime  = time.Second           // for reading what has arrived by the end, at most
)

// udpFlow is one end of a stream of datagrams.
type udpFlow struct {
	socket
	key     flowKey
	index   uint16
	sends   bool
	verify  bool
	tag     uint32
	pattern pattern
	addr    string
	payload int // bytes of each datagram
	size    int // IP length
	pace    pace
	train   int // datagrams per call that the kernel cuts apart; below 2 = none
	rcvbuf  int
	sndbuf  int

	packets atomic.Int64 // moved in all phases

	// Owned by run.
	sequence  sequence
	announced int64
	heard     int64 // when the first farewell arrived; 0 = not yet
	sent      int64 // in the window
	from, to  int64 // of the window as this end saw it
	wrong     int64 // datagrams of another size or stray
	corrupt   int64
	verified  int64

	// Owned by the meter until run has ended.
	table *record.Table
	drops [2]uint32 // socket drops at the edges
}

func newUDPFlow(fd int, q request, i int, k flowKey, flows int) *udpFlow {
	size := q.Load.PacketSize
	f := &udpFlow{
		socket: socket{fd: fd}, key: k, index: uint16(i), sends: k.sends(q.Side), verify: q.Load.Verify,
		tag: tagHash(q.Load.Tag), pattern: newPattern(q.Load.Tag, i),
		payload: size - packetOverhead(q.Load.IP), size: size, announced: -1,
		table: record.NewTable("bytes", "packets"),
	}
	f.pace = newPace(q.Load.RateBps/float64(flows), f.payload)
	f.rcvbuf = bigBuffer(&f.socket, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, receiveRoom)
	f.sndbuf = bigBuffer(&f.socket, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, sendRoom)
	tv := unix.NsecToTimeval(int64(sendTimeout))
	unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv)
	f.addr = f.local()
	return f
}

func (f *udpFlow) name() string { return fmt.Sprintf("stream %d %s", f.key.Stream, f.key.Direction) }

func (f *udpFlow) run(p *phases) error {
	if f.sends {
		return f.send(p)
	}
	return f.receive(p)
}

func (f *udpFlow) receive(p *phases) error {
	room := datagramHeader
	if f.verify {
		room = f.payload
	}
	b := newBatch(receiveBatch, room)
	// The first pass throws away greetings that came too late. What has
	// arrived is read to its end: the path did not lose it.
	for !p.over(p.Stop + int64(backlogTime)) {
		n, err := b.receive(f.fd)
		if n > 0 {
			f.count(b, n)
		}
		switch {
		case err == nil, err == unix.EAGAIN, err == unix.EINTR, err == unix.ECONNREFUSED:
		default:
			return fmt.Errorf("receive: %w", err)
		}
		if n == receiveBatch {
			continue
		}
		if f.complete(p) {
			return nil
		}
		nap(receivePoll)
	}
	return nil
}

// complete says that nothing more is to come: the sender has taken leave, or
// it is too late.
func (f *udpFlow) complete(p *phases) bool {
	now := monotonic()
	return now >= p.Stop || f.heard > 0 && now >= f.heard+int64(afterlife)
}

// count enters a batch of arrivals. The time of an arrival is that of its
// batch: precise to the poll's interval.
func (f *udpFlow) count(b *batch, n int) {
	now, good := monotonic(), int64(0)
	for i := range n {
		d, _ := readDatagram(b.at(i))
		length := b.length(i)
		if length < datagramHeader || d.tag != f.tag || d.flow != f.index || d.phase < phaseWarmup || d.phase > phaseCooldown {
			if d.phase != phaseHello {
				f.wrong++
			}
			continue
		}
		if length != f.payload {
			f.wrong++
			continue
		}
		switch d.phase {
		case phaseWindow:
			if f.from == 0 {
				f.from = now
			}
			f.to = now
			f.sequence.see(d.seq)
		case phaseCooldown:
			f.announced = int64(d.seq)
			if f.heard == 0 {
				f.heard = now
			}
		}
		if f.verify {
			bad := f.pattern.mismatches(b.at(i)[datagramHeader:], datagramPosition(d.phase, d.seq))
			f.corrupt += bad
			f.verified += int64(f.payload-datagramHeader) - bad
		}
		good++
	}
	f.packets.Add(good)
}

// unblock does nothing: neither end ever blocks for longer than a glance.
func (f *udpFlow) unblock(urgency) {}

func (f *udpFlow) sample(at int64, e edge) {
	n := f.packets.Load()
	f.table.Append(at, float64(n*int64(f.payload)), float64(n))
	if e != noEdge {
		f.drops[e-startEdge] = f.socketDrops()
	}
}

// socketDrops is what this socket threw away because its buffer was full
// (SK_MEMINFO_DROPS, kernel 4.12).
func (f *udpFlow) socketDrops() uint32 {
	const memInfo, drops = 9, 8
	var v [memInfo]uint32
	size := uint32(unsafe.Sizeof(v))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(f.fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
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
	n := f.packets.Load()
	return n * int64(f.payload), n
}

func (f *udpFlow) report() flowReport {
	r := flowReport{Sends: f.sends, Addr: f.addr, Table: f.table, Ns: f.to - f.from}
	if f.sends {
		r.Sent, r.Bytes = f.sent, f.sent*int64(f.payload)
		r.Unsent = f.pace.unsent(f.sent, r.Ns)
		return r
	}
	r.Highest = int64(f.sequence.next)
	r.Announced = f.announced
	if f.announced >= 0 && !f.sequence.finish(uint64(f.announced)) {
		r.Announced = -1 // contradicts what arrived; the sender's count will show it
	}
	r.Received, r.Lost = f.sequence.received, f.sequence.lost
	r.Duplicates, r.Reordered = f.sequence.duplicates, f.sequence.reordered
	r.Bytes = r.Received * int64(f.payload)
	r.Verified, r.Corrupt = f.verified, f.corrupt
	return r
}

// notes are this flow's facts for the record.
func (f *udpFlow) notes() map[string]int64 {
	if f.sends {
		return nil
	}
	return map[string]int64{
		"socket_drops":    int64(f.drops[1] - f.drops[0]),
		"stray_packets":   f.wrong + f.sequence.strange,
		"ancient_packets": f.sequence.ancient,
	}
}

// putSequence rewrites what differs between datagrams of one phase.
func putSequence(b []byte, ph phase, seq uint64) {
	b[6] = byte(ph)
	binary.BigEndian.PutUint64(b[8:], seq)
}
