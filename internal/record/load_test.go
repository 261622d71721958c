package record

import (
	"encoding/json"
	"testing"
)

// TestLoadOfAnEarlierFormat: a load that was stored when UDP GSO was called trains says the same.
func TestLoadOfAnEarlierFormat(t *testing.T) {
	for text, want := range map[string]string{
		`{"protocol":"udp","streams":2,"trains":"off"}`:  GSOOff,
		`{"protocol":"udp","streams":2,"udp_gso":"off"}`: GSOOff,
		`{"protocol":"udp","streams":2}`:                 "",
	} {
		var l Load
		if err := json.Unmarshal([]byte(text), &l); err != nil || l.GSO != want || l.Streams != 2 {
			t.Errorf("%s: got %+v (%v), want GSO %q", text, l, err, want)
		}
	}
	if b, err := json.Marshal(Load{GSO: GSOOff}); err != nil || !json.Valid(b) ||
		json.Unmarshal(b, new(map[string]any)) != nil {
		t.Errorf("written: %s (%v)", b, err)
	}
}
