package probe

import "testing"

// TestRedactLog: each hardware address is hidden, and nothing that only looks like part of one.
func TestRedactLog(t *testing.T) {
	const hidden = "xx:xx:xx:xx:xx:xx"
	for text, want := range map[string]string{
		"eth0: 02:fc:00:00:00:01 up":          "eth0: " + hidden + " up",
		"A:00:11:22:33:44:55":                 "A:" + hidden,
		"00:11:22:33:44:55:66":                hidden + ":66",
		"x00:11:22:33:44:5":                   "x00:11:22:33:44:5",
		"_00:11:22:33:44:55":                  "_00:11:22:33:44:55",
		"00:11:22:33:44:55 aA:bB:Cc:DD:ee:FF": hidden + " " + hidden,
		"00:11:22:33:44:55\n":                 hidden + "\n",
		"000:11:22:33:44:55":                  "000:11:22:33:44:55",
		"00:11:22:33:44:555":                  "00:11:22:33:44:555",
		"00:11:22:33:44:gg":                   "00:11:22:33:44:gg",
		"no address: at all":                  "no address: at all",
	} {
		got := redactLog(text)
		if got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
