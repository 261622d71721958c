package knob

import (
	"strings"
	"testing"
)

const wholeEnd = `{"port":51821,"mtu":1420,"inner":["198.19.1.2/24","2001:2:0:101::2/64"],` +
	`"behind":{"198.19.65.2/32":"192.0.2.10"},` +
	`"key":"xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=","endpoint":"192.0.2.2:51821",` +
	`"allowed":["198.19.1.1/32"]}`

// TestParseEnd: canonical states are read as they are, and nothing else is.
func TestParseEnd(t *testing.T) {
	for _, text := range []string{"none", wholeEnd} {
		if e, err := ParseEnd(text); err != nil || string(e.State()) != text {
			t.Errorf("%s: got %s, %v", text, e.State(), err)
		}

		if s, err := TunnelEnd().Parse(text); err != nil || string(s) != text {
			t.Errorf("%s as a setting: got %s, %v", text, s, err)
		}
	}

	for _, change := range [][2]string{{"51821,", "-1,"}, {"51821,", "65536,"}, {"1420", "1420.5"},
		{"{", " {"},
		{"198.19.1.2/24", "x; /y"}, {"198.19.1.2/24", "fe80::1%lan/64"}, {"198.19.65.2/32", "198.19.65.2"},
		{"192.0.2.10", "fe80::1%lan"}, {"192.0.2.2:51821", "[fe80::1%lan]:51821"}, {"8Dg=", "8Dh="},
		{"8Dg=", `8Dg=\n`}, {"xTIBA5", ""}, {`["198.19.1.1/32"]`, "[]"}, {`"endpoint":"192.0.2.2:51821",`, ""},
		{`"key":"xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=",`, ""},
		{`"port"`, `"private":"c2VjcmV0","port"`}, {`,"allowed"`, `,"preshared":"c2VjcmV0","allowed"`}} {
		text := strings.Replace(wholeEnd, change[0], change[1], 1)
		if e, err := ParseEnd(text); err == nil || text == wholeEnd {
			t.Errorf("%s: got %+v, want an error", text, e)
		}
	}
}

func FuzzParseEnd(f *testing.F) {
	f.Add("none")
	f.Add(wholeEnd)
	f.Add(strings.Replace(wholeEnd, "192.0.2.2", "[::ffff:192.0.2.2]", 1))
	f.Fuzz(func(t *testing.T, text string) {
		if e, err := ParseEnd(text); err == nil && string(e.State()) != text {
			t.Errorf("%s: got %s", text, e.State())
		}
	})
}
