package traffic

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func TestLoopbackTakesNoLongList(t *testing.T) {
	_, err := Loopback(t.Context(), node(t), make([]Kind, 41))
	wantError(t, err, "41 kinds", "at most 40")
}

func TestLoopbackCeilings(t *testing.T) {
	kinds := append(slices.DeleteFunc(UsualKinds(), Kind.Frames), Kind{Protocol: "udp", Streams: 2,
		PacketSize: 1000},
		Kind{Protocol: "udp", Streams: 2, IMIX: true}, KindOf("requests", record.Load{Protocol: "tcp",
			Streams: 4}, Link{}),
		KindOf("native", record.Load{Protocol: "udp", PacketSize: 512, UDPMode: record.UDPCount}, Link{}))
	got, err := Loopback(t.Context(), node(t), kinds)
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
		if c.Unit != unit || c.Value < 1000 || c.Kind != k.over("loopback") || c.UDPMode != k.UDPMode ||
			c.PacketSize != k.PacketSize || c.IMIX != k.IMIX || c.Streams != k.Streams ||
			c.Engine != k.Engine || c.FlowSize != k.FlowSize || c.RequestSize != k.RequestSize ||
			c.ResponseSize != k.ResponseSize {
			t.Errorf("ceiling %+v, want some %s of %v", c, unit, k)
		}
		t.Logf("%+v", c)
	}
}

// windows is an engine whose loads bring what it is told, in bytes of a second: nothing, or that much,
// below zero only to be read late.
type windows struct {
	Native
	bytes []int64
	taken int
}

func (w *windows) Offer(context.Context, End, End, record.Load, Conductor) (*record.Traffic, error) {
	n := w.bytes[w.taken]
	w.taken++
	t := &record.Traffic{Load: record.Load{Protocol: "tcp", Duration: time.Second},
		Flows: []record.Flow{{ReceiverNs: 1e9, ReceivedBytes: max(n, -n)}}}
	if n < 0 {
		t.Ends = map[string]record.EndUsage{"far": {EdgeLateNs: int64(time.Second / 2)}}
	}
	return t, nil
}

// The best of three windows that say something is the ceiling; three that say nothing end it.
func TestBestOfSeveralWindows(t *testing.T) {
	for _, tt := range []struct {
		bytes []int64
		best  float64 // bit/s
		note  string
		err   string
	}{
		{bytes: []int64{1000, 3000, 2000}, best: 24000},
		{bytes: []int64{3000, 1000, 2000}, best: 24000},
		{bytes: []int64{0, 1000, -9000, 2000, 1500}, best: 16000, note: "said nothing: 2"},
		{bytes: []int64{0, 0, 1000, 2000, 0}, best: 16000, note: "said nothing: 3"},
		{bytes: []int64{-9000, 0, 0}, err: "nothing arrived in any of three windows"},
		{bytes: []int64{0, -9000, -9000},
			err: "the far end read its counts 500ms late at an edge of the window of 1s"},
	} {
		e := &windows{bytes: tt.bytes}
		c, err := look(t.Context(), e, End{}, End{}, Kind{Protocol: "tcp", Streams: 1}, record.Load{})
		if tt.err != "" {
			wantError(t, err, tt.err)
			continue
		}
		if err != nil || c.Value != tt.best || strings.Contains(c.Note, "windows") != (tt.note != "") ||
			!strings.Contains(c.Note, tt.note) || e.taken != len(tt.bytes) {
			t.Errorf("%v: got %+v and %v of %d windows, want %g bit/s of all and the note %q", tt.bytes, c,
				err, e.taken, tt.best, tt.note)
		}
	}
}

// TestFramesNeedALink: over the loopback device the engine would do something else, and not say what frames
// reach.
func TestFramesNeedALink(t *testing.T) {
	got, err := Loopback(t.Context(), node(t), slices.DeleteFunc(UsualKinds(),
		func(k Kind) bool { return !k.Frames() }))
	wantError(t, err, "xdp, 64-byte frames", "needs a link")
	if len(got) != 0 {
		t.Errorf("ceilings %v, want none", got)
	}
}
