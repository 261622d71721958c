package diagnosis

import "testing"

// TestDiedInside: that no packet died is stated only where none did.
func TestDiedInside(t *testing.T) {
	for _, tt := range []struct {
		packets, missed float64
		want            string
	}{
		{0, 0, "no packet died inside the router"},
		{12, 0, "12 packets died inside the router, but the ends miss none"},
		{7, 9, "7 of the 9 packets that the ends miss died in the router, in none of its queues"},
	} {
		d := deaths{place: place{"router", "rules"}, packets: tt.packets, missed: tt.missed}
		if got := d.died().Text; got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}
