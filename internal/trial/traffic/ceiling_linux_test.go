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
	_, err := Loopback(t.Context(), node(t), make([]Kind, 21))
	wantError(t, err, "21 kinds", "at most 20")
}

func TestLoopbackCeilings(t *testing.T) {
	kinds := append(slices.DeleteFunc(UsualKinds(), Kind.Frames), Kind{Protocol: "udp", Streams: 2, PacketSize: 1000},
		Kind{Protocol: "udp", Streams: 2, IMIX: true}, KindOf("requests", record.Load{Protocol: "tcp", Streams: 4}))
	got, err := Loopback(t.Context(), node(t), kinds)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(kinds) {
		t.Fatalf("got %d ceilings, want %d", len(got), len(kinds))
	}
	for i, c := range got {
		k := kinds[i]
		unit := map[string]string{"tcp": "bit/s", "udp": "pps", "flowstcp": "flows/s", "requeststcp": "requests/s"}[k.Engine+k.Protocol]
		// Far below what any machine does, far above nothing.
		if c.Unit != unit || c.Value < 1000 || c.Kind != k.String() || c.PacketSize != k.PacketSize || c.IMIX != k.IMIX || c.Streams != k.Streams ||
			c.Engine != k.Engine || c.FlowSize != k.FlowSize || c.RequestSize != k.RequestSize || c.ResponseSize != k.ResponseSize {
			t.Errorf("ceiling %+v, want some %s of %v", c, unit, k)
		}
		t.Logf("%+v", c)
	}
}

// emptyWindows is an engine whose first loads bring nothing, or are read late.
type emptyWindows struct {
	Native
	left int
	late time.Duration
}

func (e *emptyWindows) Offer(context.Context, End, End, record.Load, Conductor) (*record.Traffic, error) {
	f := record.Flow{ReceiverNs: 1e9, ReceivedBytes: 1000}
	t := &record.Traffic{Load: record.Load{Protocol: "tcp", Duration: time.Second}}
	if e.left--; e.left >= 0 && e.late == 0 {
		f.ReceivedBytes = 0
	} else if e.left >= 0 {
		t.Ends = map[string]record.EndUsage{"far": {EdgeLateNs: int64(e.late)}}
	}
	t.Flows = []record.Flow{f}
	return t, nil
}

func TestNothingIsNoCeiling(t *testing.T) {
	k := Kind{Protocol: "tcp", Streams: 1}
	for _, late := range []time.Duration{0, time.Second / 2} {
		for before, note := range []string{"", "said nothing: 1", "said nothing: 2"} {
			c, err := look(t.Context(), &emptyWindows{left: before, late: late}, End{}, End{}, k, record.Load{})
			if err != nil || c.Value != 8000 || strings.Contains(c.Note, "windows") != (before > 0) || !strings.Contains(c.Note, note) {
				t.Errorf("after %d windows that said nothing: got %+v and %v, want 8000 bit/s and a note of them", before, c, err)
			}
		}
	}
	_, err := look(t.Context(), &emptyWindows{left: 3}, End{}, End{}, k, record.Load{})
	wantError(t, err, "nothing arrived in any of three windows")
	_, err = look(t.Context(), &emptyWindows{left: 3, late: time.Second / 2}, End{}, End{}, k, record.Load{})
	wantError(t, err, "the far end read its counts 500ms late at an edge of the window of 1s")
}

// TestFramesNeedALink: over the loopback device the engine would do something
// else, and not say what frames reach.
func TestFramesNeedALink(t *testing.T) {
	got, err := Loopback(t.Context(), node(t), slices.DeleteFunc(UsualKinds(), func(k Kind) bool { return !k.Frames() }))
	wantError(t, err, "xdp direct, 64-byte frames", "needs a link")
	if len(got) != 0 {
		t.Errorf("ceilings %v, want none", got)
	}
}
