package record

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
)

// TestIMIXIsThatOfCSIT: 28 : 16 : 4 frames of 64, 570 and 1518 bytes, of 353.83 in the mean, and never two
// large ones in a row.
func TestIMIXIsThatOfCSIT(t *testing.T) {
	for ip, small := range map[string]int{"4": 64, "6": 84} {
		sizes := Factors{"packet_size": factor.IMIX, "ip": ip}.PacketSizes()
		frames := map[int]int{}
		for i, n := range sizes {
			frames[n+18]++
			next := sizes[(i+1)%len(sizes)]
			if n == next && n+18 != small {
				t.Errorf("IPv%s: two packets of %d bytes in a row", ip, n)
			}
		}

		diff := cmp.Diff(map[int]int{small: 7, 570: 4, 1518: 1}, frames)
		if diff != "" {
			t.Errorf("IPv%s: frames of a round (-want +got):\n%s", ip, diff)
		}

		got, want := MeanSize(sizes)+18, float64(7*small+4*570+1518)/12
		if got != want {
			t.Errorf("IPv%s: frames of %v bytes in the mean, want %v", ip, got, want)
		}
	}
}

func TestPacketSizes(t *testing.T) {
	for level, want := range map[string][]int{"200": {200}, "": nil, "x": nil, "0": nil, "-3": nil} {
		diff := cmp.Diff(want, Factors{"packet_size": level}.PacketSizes())
		if diff != "" {
			t.Errorf("packet_size %q (-want +got):\n%s", level, diff)
		}
	}

	got := MeanSize(nil)
	if got != 0 {
		t.Errorf("mean of no size: %v, want 0", got)
	}

	if diff := cmp.Diff([]int{100}, Load{PacketSize: 100}.PacketSizes()); diff != "" {
		t.Errorf("of a load with one (-want +got):\n%s", diff)
	}
}
