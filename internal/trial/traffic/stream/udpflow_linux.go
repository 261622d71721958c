package stream

import (
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

const (
	// for a receiver with ample space; saves a tenth of the total cost of two flows at full rate
	amplePoll = time.Millisecond
	ampleRoom = 16 << 20
	edgeTime  = 10 * time.Millisecond
)

// udpFlow is one end of a stream of datagrams.
type udpFlow struct {
	udpCount
	*traffic.Socket                  // its own, connected, or the listener's, which many flows share
	to              *traffic.RawAddr // destination when using the listener's; else nil
	ample           bool             // space for arriving datagrams
	drops           bool             // the socket reports its own drops
	gso             gso
	dropped         [2]uint32 // by the socket, at the edges; belongs to the meter until run has ended
}

func (f *udpFlow) Sample(at int64, e traffic.Edge) {
	f.udpCount.Sample(at, e)
	if e != traffic.NoEdge && f.drops {
		f.dropped[e-traffic.StartEdge] = f.SocketDrops()
	}
}

func (f *udpFlow) Report() traffic.FlowReport {
	r := f.udpCount.Report()
	if !f.Sends {
		r.Notes["socket_drops"] = int64(f.dropped[1] - f.dropped[0])
	}
	return r
}
