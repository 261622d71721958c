package traffic

import "testing"

func TestLoopbackTakesNoLongList(t *testing.T) {
	_, err := Loopback(t.Context(), node(t), make([]Kind, 9))
	wantError(t, err, "9 kinds", "at most 8")
}

func TestLoopbackCeilings(t *testing.T) {
	kinds := append(UsualKinds(), Kind{"udp", 2, 1000})
	got, err := Loopback(t.Context(), node(t), kinds)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(kinds) {
		t.Fatalf("got %d ceilings, want %d", len(got), len(kinds))
	}
	for i, c := range got {
		unit := map[string]string{"tcp": "bit/s", "udp": "pps"}[kinds[i].Protocol]
		// Far below what any machine does, far above nothing.
		if c.Unit != unit || c.Value < 1000 || c.Kind != kinds[i].String() || c.PacketSize != kinds[i].PacketSize || c.Streams != kinds[i].Streams {
			t.Errorf("ceiling %+v, want some %s of %v", c, unit, kinds[i])
		}
		t.Logf("%+v", c)
	}
}
