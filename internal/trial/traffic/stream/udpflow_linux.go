package stream

import (
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

const (
	// of a receiver with ample room; saves a tenth of all cost of two flows flat out
	amplePoll = time.Millisecond
	ampleRoom = 16 << 20
	edgeTime  = 10 * time.Millisecond
)

// udpFlow is one end of a stream of datagrams.
type udpFlow struct {
	udpCount
	traffic.Socket                      // of its own; closed from the start where it shares a listener
	listener       *traffic.UDPListener // shared with other flows of the listener, or nil
	to             *traffic.RawAddr     // where to send through the listener
	drops          *traffic.Socket      // whose drops this flow reports, or nil
	gso            gso
	rcvbuf         int
	sndbuf         int
	dropped        [2]uint32 // by the socket, at the edges; the meter's until run has ended
}

// newUDPFlow makes one end of a flow; fd is -1 where it shares a listener.
func newUDPFlow(fd int, q traffic.Request, i int, k traffic.FlowKey, flows int) *udpFlow {
	f := &udpFlow{}
	f.open(q, i, k, flows)
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
	f.udpCount.Sample(at, e)
	if e != traffic.NoEdge && f.drops != nil {
		f.dropped[e-traffic.StartEdge] = f.drops.SocketDrops()
	}
}

func (f *udpFlow) Report() traffic.FlowReport {
	r := f.udpCount.Report()
	if !f.sends {
		r.Notes["socket_drops"] = int64(f.dropped[1] - f.dropped[0])
	}
	return r
}
