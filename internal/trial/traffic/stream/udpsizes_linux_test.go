package stream

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// TestSizesAddUp: the bytes of the first n datagrams are the sum of their sizes, of every flow.
func TestSizesAddUp(t *testing.T) {
	for _, load := range []record.Load{{IP: 4, PacketSize: 500}, {IP: 6, Sizes: factor.IMIXSizes("6")},
		{IP: 4, Sizes: []int{100, 1500, 60, 60, 60}}} {
		for flow := range 20 {
			s := traffic.SizesOf(load, flow)
			sum := int64(0)
			for n := range uint64(40) {
				got := s.Bytes(n)
				if got != sum {
					t.Fatalf("sizes %v of flow %d: %d bytes before datagram %d, want %d", load.PacketSizes(),
						flow, got, n, sum)
				}

				sum += int64(s.Of(n))
			}
		}
	}
}

// TestFlowsBeginAtDifferentSizes: n flows that send in turn send the load's mix in each of their rounds.
func TestFlowsBeginAtDifferentSizes(t *testing.T) {
	load := record.Load{IP: 4, Sizes: []int{100, 1500, 60}}
	var got []int
	for flow := range 4 {
		s := traffic.SizesOf(load, flow)
		got = append(got, s.Of(0)+28, s.Of(1)+28)
	}

	diff := cmp.Diff([]int{100, 1500, 1500, 60, 60, 100, 100, 1500}, got)
	if diff != "" {
		t.Errorf("sizes of the first two datagrams of four flows (-want +got):\n%s", diff)
	}

	if got, want := traffic.MeanPayload(load), float64(100+1500+60)/3-28; got != want {
		t.Errorf("mean payload %v, want %v", got, want)
	}
}
