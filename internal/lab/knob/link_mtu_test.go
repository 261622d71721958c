package knob

import "testing"

// TestLevelsInWords: a refused MTU comes with the reason, and no rules are called so.
func TestLevelsInWords(t *testing.T) {
	for text, want := range map[string]string{
		"576":   "parse link_mtu \"576\": want a number from 1280 to 65535: IPv6 needs 1280 on every link",
		"70000": "parse link_mtu \"70000\": want a number from 1280 to 65535",
	} {
		if _, err := LinkMTU().Parse(text); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}

	for level, want := range map[string]string{
		"0":            "no firewall rules",
		"500 stateful": "500 firewall rules stateful",
	} {
		if got := firewallPhrase(level); got != want {
			t.Errorf("%s: got %q, want %q", level, got, want)
		}
	}
}
