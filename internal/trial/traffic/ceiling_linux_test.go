package traffic

import "testing"

func TestLoopbackCeilings(t *testing.T) {
	got, err := Loopback(t.Context(), node(t))
	if err != nil {
		t.Fatal(err)
	}
	units := []string{"bit/s", "bit/s", "pps"}
	if len(got) != len(units) {
		t.Fatalf("got %d ceilings, want %d", len(got), len(units))
	}
	for i, c := range got {
		// Far below what any machine does, far above nothing.
		if c.Unit != units[i] || c.Value < 1000 || c.Kind == "" {
			t.Errorf("ceiling %+v, want some %s", c, units[i])
		}
		t.Logf("%+v", c)
	}
}
