package traffic

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func TestKindsOfLoads(t *testing.T) {
	loads := []record.Load{
		{Protocol: "tcp", Streams: 4}, {Protocol: "tcp", Streams: 1}, {Protocol: "tcp", Streams: 4}, {Protocol: "tcp", Streams: 900},
		{Protocol: "udp", Streams: 2, PacketSize: 64}, {Protocol: "udp", Streams: 1, PacketSize: 64},
	}
	for _, size := range []int{1500, 128, 256, 512, 1024, 1280} {
		loads = append(loads, record.Load{Protocol: "udp", PacketSize: size})
	}
	want := []Kind{{"tcp", 1, 0}, {"tcp", 4, 0}, {"tcp", 64, 0}, {"udp", 2, 64}, {"udp", 1, 256}, {"udp", 1, 1024}, {"udp", 1, 1500}}
	if diff := cmp.Diff(want, KindsOf(loads)); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
	if got := KindsOf(nil); got != nil {
		t.Errorf("of no load: %v", got)
	}
	names := []string{"tcp loopback, 1 stream", "tcp loopback, 4 streams", "tcp loopback, 64 streams", "udp loopback, 64-byte packets, 2 streams", "udp loopback, 256-byte packets"}
	for i, name := range names {
		if got := want[i].String(); got != name {
			t.Errorf("kind %d: %q, want %q", i, got, name)
		}
	}
}
