package record

import "github.com/chokepoint-lab/chokepoint/internal/factor"

// IMIX is the packet size that stands for packets of several sizes, in turn.
const IMIX = factor.IMIX

// PacketSizes are the IP lengths of the load's packets, which each flow repeats in this order.
func (l Load) PacketSizes() []int {
	if len(l.Sizes) > 0 {
		return l.Sizes
	}
	return []int{l.PacketSize}
}

// MeanSize is the mean of packet sizes; 0 of none.
func MeanSize(sizes []int) float64 {
	sum := 0
	for _, n := range sizes {
		sum += n
	}
	return float64(sum) / float64(max(len(sizes), 1))
}
