package stream

import (
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

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
