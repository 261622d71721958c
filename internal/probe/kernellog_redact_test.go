package probe

import (
	"regexp"
	"testing"
)

func FuzzRedactLog(f *testing.F) {
	for _, s := range []string{"eth0: 02:fc:00:00:00:01 up", "A:00:11:22:33:44:55", "00:11:22:33:44:55:66",
		"x00:11:22:33:44:5", "_00:11:22:33:44:55",
		"00:11:22:33:44:55 aA:bB:Cc:DD:ee:FF", "00:11:22:33:44:55\n", "000:11:22:33:44:55"} {
		f.Add(s)
	}

	same := regexp.MustCompile(`(?i)\b([0-9a-f]{2}:){5}[0-9a-f]{2}\b`)
	f.Fuzz(func(t *testing.T, text string) {
		got := redactLog(text)
		want := same.ReplaceAllString(text, "xx:xx:xx:xx:xx:xx")
		if got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	})
}
