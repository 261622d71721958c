package frames

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func TestTheBestModeIsChosen(t *testing.T) {
	refused := func(modes ...string) frameModes {
		w := frameModes{}
		for _, mode := range modes {
			w[mode] = "no " + mode
		}
		return w
	}
	const notLive, notPacket = "not BPF test-run frames: no live",
		"not AF_PACKET past the queueing discipline: no af_packet"
	tests := []struct {
		name  string
		modes frameModes
		want  string // by the load
		got   choice
	}{
		{"all work", refused(), "", choice{mode: "live"}},
		{"the sink does not matter", refused("driver"), "", choice{mode: "live"}},
		{"no BPF test-run frames", refused("live"), "", choice{"af_packet", notLive}},
		{"none", refused("live", "af_packet"), "", choice{"", notLive + "; " + notPacket}},
		{"none, for one reason", frameModes{"live": "no", "af_packet": "no"}, "",
			choice{"", "not BPF test-run frames, AF_PACKET past the queueing discipline: no"}},
		{"one is wanted", refused("live"), "af_packet", choice{mode: "af_packet"}},
		{"and does not work", refused("af_packet"), "af_packet", choice{"", notPacket}},
	}
	for _, tt := range tests {
		got := tt.modes.sender(record.Load{Frames: tt.want})
		diff := cmp.Diff(tt.got, got, cmp.AllowUnexported(choice{}))
		if diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}

	if got := refused("driver").sink(record.Load{}); got.mode != record.SinkSockets ||
		got.instead != "not counted in the driver: no driver" {
		t.Errorf("no sink in the driver: got %+v, want sockets with the reason", got)
	}
}

func TestUnknownModesAreRefused(t *testing.T) {
	load := record.Load{Protocol: "udp", IP: 4, Streams: 1, PacketSize: 46, Direction: record.Up}
	if a := checkFrames(load); a.State != check.Yes {
		t.Fatalf("got %+v, want yes", a)
	}

	for _, change := range []func(*record.Load){
		func(l *record.Load) { l.Frames = "pigeon" },
		func(l *record.Load) { l.Sink = "pigeon" },
	} {
		l := load
		change(&l)
		a := checkFrames(l)
		if a.State != check.No || !strings.Contains(a.Reason, "pigeon") {
			t.Errorf("%+v: got %+v, want no with the name", l, a)
		}
	}
}

// TestCaveatsTellTheLesserMode: for each end that could not do what the engine is for.
func TestCaveatsTellTheLesserMode(t *testing.T) {
	got := fellBack(map[string]string{"near.fell_back": "AF_PACKET (not BPF test-run frames: why)",
		"far.mode": "xdp: counted in the driver"})
	want := []record.Caveat{{
		Kind: "engine-fell-back",
		Text: "the near end: AF_PACKET (not BPF test-run frames: why)",
	}}
	diff := cmp.Diff(want, got)
	if diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
