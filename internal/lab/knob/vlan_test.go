package knob

import "testing"

func TestVLANDevice(t *testing.T) {
	for _, tt := range []struct {
		state State
		want  string
	}{{"", "wan"}, {"off", "wan"}, {"10", "wan.10"}, {"lan: 10; wan: off", "wan"},
		{"lan: off; wan: 30", "wan.30"}, {"lan: 10", "wan"}} {
		got := VLANDevice("wan", tt.state)
		if got != tt.want {
			t.Errorf("device of wan with vlan %q: got %s, want %s", tt.state, got, tt.want)
		}
	}
}
