package stream

import (
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

const (
	// Polling interval for a receiver with a large socket buffer. A long interval saves a tenth of the total
	// cost of two flows at full rate.
	amplePoll = time.Millisecond
	ampleRoom = 16 << 20
	edgeTime  = 10 * time.Millisecond
)

// udpFlow is one end of a UDP flow.
type udpFlow struct {
	udpCount
	*traffic.Socket                  // the flow's own connected socket, or the listener's, which flows share
	to              *traffic.RawAddr // destination on a shared socket, or nil
	ample           bool             // the receive buffer is large
	drops           bool             // this flow reports the packets that its socket dropped
	gso             gso
	dropped         [2]uint32 // socket drops at start and end; for the meter until the run has ended
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
