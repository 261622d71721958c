package stream

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

const (
	// of a receiver with ample room; saves a tenth of all cost of two flows flat out
	amplePoll = time.Millisecond
	ampleRoom = 16 << 20
	edgeTime  = 10 * time.Millisecond
	afterlife = 10 * time.Millisecond // in which a packet may arrive that the end of the stream has overtaken
)

// udpFlow is one end of a stream of datagrams.
type udpFlow struct {
	traffic.Socket                      // of its own; closed from the start where it shares a listener
	listener       *traffic.UDPListener // shared with other flows of the listener, or nil
	to             *traffic.RawAddr     // where to send through the listener
	drops          *traffic.Socket      // whose drops this flow reports, or nil
	key            traffic.FlowKey
	index          uint16
	sends          bool
	verify         bool
	count          bool // by length: several datagrams may come as one
	tag            uint32
	pattern        traffic.Pattern
	addr           string
	payload        int // bytes of each datagram, or of the largest
	size           int // its IP length
	sizes          sizes
	gso            gso
	rcvbuf         int
	sndbuf         int

	packets atomic.Int64 // moved in all phases
	bytes   atomic.Int64

	// Owned by the worker.
	seq        uint64 // sender: of the next datagram in this phase
	moved      int64  // receiver: packets before they are made known
	movedBytes int64
	arrived    int64 // bytes of the window's, without duplicates
	sequence   traffic.Sequence
	delays     delays
	unstamped  int64
	announced  int64
	endSeen    int64 // when the first end of the stream arrived; 0 = not yet
	sent       int64 // in the window
	unsent     int64
	burst      int64 // bytes that its thread sent back to back, at most
	from, till int64 // of the window as this end saw it
	wrong      int64 // datagrams of another size
	corrupt    int64
	verified   int64

	// Owned by the meter until run has ended.
	table   *record.Table
	dropped [2]uint32 // by the socket, at the edges
}

// newUDPFlow makes one end of a flow; fd is -1 where it shares a listener.
func newUDPFlow(fd int, q traffic.Request, i int, k traffic.FlowKey, flows int) *udpFlow {
	size := slices.Max(q.Load.PacketSizes())
	f := &udpFlow{key: k, index: uint16(i), sends: k.Sends(q.Side), verify: q.Load.Verify,
		count: traffic.Counts(q.Load), tag: traffic.TagHash(traffic.TagData, q.Load.Tag),
		pattern: traffic.NewPattern(q.Load.Tag, i), payload: size - traffic.PacketOverhead(q.Load.IP),
		size: size, sizes: sizesOf(q.Load, i), announced: -1, table: record.NewTable("bytes", "packets")}
	if !f.sends && !f.count {
		f.sequence = traffic.NewSequence(traffic.MemoryOf(flows))
	}
	if fd < 0 {
		f.Closed = true
		return f
	}
	f.FD, f.drops = fd, &f.Socket
	f.rcvbuf, f.sndbuf = traffic.UDPRoom(&f.Socket, flows)
	f.addr = f.Local()
	return f
}

// sendFD is the descriptor that the flow sends through.
func (f *udpFlow) sendFD() int {
	if f.listener != nil {
		return f.listener.FD
	}
	return f.FD
}

func (f *udpFlow) Sample(at int64, e traffic.Edge) {
	f.table.Append(at, float64(f.bytes.Load()), float64(f.packets.Load()))
	if e != traffic.NoEdge && f.drops != nil {
		f.dropped[e-traffic.StartEdge] = f.drops.SocketDrops()
	}
}

func (f *udpFlow) Received() (bytes, packets int64) {
	if f.sends {
		return 0, 0
	}
	return f.bytes.Load(), f.packets.Load()
}

func (f *udpFlow) Report() traffic.FlowReport {
	r := traffic.FlowReport{Sends: f.sends, Addr: f.addr, Table: f.table, Ns: f.till - f.from}
	if f.sends {
		r.Sent, r.Bytes, r.Unsent = f.sent, f.sizes.bytes(uint64(f.sent)), f.unsent
		if f.burst > 0 {
			r.Notes = map[string]int64{"burst_most_bytes": f.burst}
		}
		return r
	}
	r.Bytes, r.Verified, r.Corrupt = f.arrived, f.verified, f.corrupt
	r.Notes = map[string]int64{"socket_drops": int64(f.dropped[1] - f.dropped[0]),
		"stray_packets": f.wrong + f.sequence.Strange, "ancient_packets": f.sequence.Ancient}
	if f.count {
		// What is lost only the sender's count can tell.
		r.Received, r.Highest, r.Announced = f.sequence.Received, f.sequence.Received, -1
		return r
	}
	r.Announced = f.announced
	if f.announced >= 0 && !f.sequence.Finish(uint64(f.announced)) {
		r.Announced = -1 // contradicts what arrived; the sender's count will show it
	}
	if r.Announced < 0 {
		f.sequence.Finish(f.sequence.Next)
	}
	r.Highest = int64(f.sequence.Next)
	r.Received, r.Lost = f.sequence.Received, f.sequence.Lost
	r.Duplicates, r.Reordered = f.sequence.Duplicates, f.sequence.Reordered
	r.Gaps = f.sequence.Gaps.List()
	stamps := "kernel"
	if f.unstamped > 0 {
		stamps = "user"
	}
	r.Delay = f.delays.variation(stamps)
	return r
}

func (f *udpFlow) name() string { return fmt.Sprintf("stream %d %s", f.key.Stream, f.key.Direction) }

// sizes are the payloads of a flow's datagrams: the n-th has that of its number, in all phases, so that
// both ends know how long each is.
type sizes struct {
	cycle []int
	ahead []int64 // bytes of all before it in the cycle; the last is of the whole
}

// sizesOf are those of one flow of a load. Flows begin at different places, so that those which send in
// turn do not all send their large ones together.
func sizesOf(load record.Load, flow int) sizes {
	all := load.PacketSizes()
	s := sizes{cycle: make([]int, len(all)), ahead: make([]int64, len(all)+1)}
	for i := range all {
		s.cycle[i] = all[(flow+i)%len(all)] - traffic.PacketOverhead(load.IP)
		s.ahead[i+1] = s.ahead[i] + int64(s.cycle[i])
	}
	return s
}

// of is the payload of the datagram with a number.
func (s *sizes) of(seq uint64) int {
	if len(s.cycle) == 1 {
		return s.cycle[0]
	}
	return s.cycle[seq%uint64(len(s.cycle))]
}

// bytes are those of the first n datagrams.
func (s *sizes) bytes(n uint64) int64 {
	round := uint64(len(s.cycle))
	return int64(n/round)*s.ahead[round] + s.ahead[n%round]
}

// MeanPayload is that of a load's datagrams.
func MeanPayload(load record.Load) float64 {
	return record.MeanSize(load.PacketSizes()) - float64(traffic.PacketOverhead(load.IP))
}
