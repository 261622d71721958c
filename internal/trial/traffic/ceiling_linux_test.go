package traffic_test

import (
	"slices"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/ceiling"
)

func TestLoopbackTakesNoLongList(t *testing.T) {
	_, err := ceiling.Loopback(t.Context(), node(t), make([]ceiling.Kind, 49))
	wantError(t, err, "49 kinds", "at most 48")
}

func TestLoopbackCeilings(t *testing.T) {
	apart.Long(t, "takes longer than a package has")
	kinds := append(slices.DeleteFunc(ceiling.UsualKinds(), ceiling.Kind.Frames),
		ceiling.Kind{
			Protocol:   "udp",
			Streams:    2,
			PacketSize: 1000,
		},
		ceiling.Kind{Protocol: "udp", Streams: 2, IMIX: true}, ceiling.KindOf("requests",
			record.Load{
				Protocol: "tcp",
				Streams:  4,
			}, record.Link{}),
		ceiling.KindOf("native", record.Load{Protocol: "udp", PacketSize: 512, UDPMode: record.UDPCount},
			record.Link{}))
	got, err := ceiling.Loopback(t.Context(), node(t), kinds)
	if err != nil {
		t.Fatal(err)
	}

	if len(got) != len(kinds) {
		t.Fatalf("got %d ceilings, want %d", len(got), len(kinds))
	}

	for i, c := range got {
		k := kinds[i]
		unit := map[string]string{"tcp": "bit/s", "udp": "pps", "flowstcp": "flows/s",
			"requeststcp": "requests/s"}[k.Engine+k.Protocol]
		// Far below what any machine does, far above nothing.
		if c.Unit != unit || c.Value < 1000 || c.Kind != k.Over("loopback") || c.UDPMode != k.UDPMode ||
			c.PacketSize != k.PacketSize || c.IMIX != k.IMIX || c.Streams != k.Streams ||
			c.Engine != k.Engine || c.FlowSize != k.FlowSize || c.RequestSize != k.RequestSize ||
			c.ResponseSize != k.ResponseSize {
			t.Errorf("ceiling %+v, want some %s of %v", c, unit, k)
		}

		t.Logf("%+v", c)
	}
}

// TestFramesNeedALink: over the loopback device the engine would do something else, and not say what frames
// reach.
func TestFramesNeedALink(t *testing.T) {
	got, err := ceiling.Loopback(t.Context(), node(t), slices.DeleteFunc(ceiling.UsualKinds(),
		func(k ceiling.Kind) bool { return !k.Frames() }))
	wantError(t, err, "xdp, 64-byte frames", "needs a link")
	if len(got) != 0 {
		t.Errorf("ceilings %v, want none", got)
	}
}
