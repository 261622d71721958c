package guest

import (
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

func TestMatches(t *testing.T) {
	tests := []struct {
		pattern, text string
		want          bool
	}{
		{"", "", true},
		{"", "a", false},
		{"a", "", false},
		{"crypto_ghash", "crypto_ghash", true},
		{"crypto_ghash", "crypto_ghash_all", false},
		{"*", "", true},
		{"*", "anything/at all", true},
		{"virtio:d00000001v*", "virtio:d00000001v00001AF4", true},
		{"virtio:d00000001v*", "virtio:d00000002v00001AF4", false},
		{"pci:v*d*sv*sd*bc03sc*i*", "pci:v00001234d00001111sv00001AF4sd00001100bc03sc00i00", true},
		{"pci:v*d*sv*sd*bc03sc*i*", "pci:v00001234d00001111sv00001AF4sd00001100bc02sc00i00", false},
		{"a?c", "abc", true},
		{"a?c", "ac", false},
		{"usb:[0-9a]x", "usb:5x", true},
		{"usb:[0-9a]x", "usb:bx", false},
		{"[!0-9]", "x", true},
		{"[!0-9]", "7", false},
		{"[^0-9]", "7", false},
		{"[ab", "a", false}, // not well formed
		{"[ab", "[ab", false},
		{`a\`, `a\`, false},
		{`a\*b`, "a*b", true},
		{`a\*b`, "axb", false},
		{"*a*b*c", "xxaxxbxxc", true},
		{"*a*b*c", "xxaxxbxxcx", false},
	}
	for _, tt := range tests {
		got := matches(tt.pattern, tt.text)
		if got != tt.want {
			t.Errorf("%q covers %q: got %v, want %v", tt.pattern, tt.text, got, tt.want)
		}
	}
}

func TestNormal(t *testing.T) {
	for text, want := range map[string]string{
		"nf-conntrack":                      "nf_conntrack",
		"crypto-rfc7539(chacha20,poly1305)": "crypto_rfc7539(chacha20,poly1305)",
		"a-[0-9]-b":                         "a_[0-9]_b", "": "",
	} {
		expect.Same(t, fmt.Sprintf("normal form of %q", text), want, normal(text))
	}
}

// FuzzMatches: the standard library's matcher is the oracle where the two mean the same; beyond it there
// must be no panic and no endless search.
func FuzzMatches(f *testing.F) {
	f.Add("a*b?c", "axxbyc")
	f.Add("[a-z]*", "q")
	f.Add("[!]", "x")
	f.Add(strings.Repeat("*a", 30), strings.Repeat("a", 60)+"b")
	f.Add("/", "\x00")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		got := matches(pattern, text)
		if mayMatch(pattern+"\n", text) == false && got && text == normal(text) &&
			pattern == normal(pattern) {
			t.Fatalf("%q covers %q, but the quick look ruled it out", pattern, text)
		}

		for _, s := range []string{pattern, text} {
			if strings.ContainsAny(s, "/[]\\^!") || strings.ContainsFunc(s,
				func(r rune) bool { return r > '~' }) {
				return
			}
		}

		want, err := path.Match(pattern, text)
		if err != nil || got != want {
			t.Fatalf("%q covers %q: got %v, want %v (%v)", pattern, text, got, want, err)
		}
	})
}
