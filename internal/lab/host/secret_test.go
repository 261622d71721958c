package host

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

// TestSecretInsideOthersIsRedacted: fmt calls no method of what an unexported field holds, and not every
// verb asks for a Stringer.
func TestSecretInsideOthersIsRedacted(t *testing.T) {
	s := SecretFrom([]byte("hunter2"))
	leaks := []string{"hunter", "68756e", "68756E", "104 117", "0x68, 0x75", "150 165", "1101000 1110101",
		"'h' 'u'", "h u n", "U+0068 U+0075"}
	holders := map[string]any{
		"itself":              s,
		"pointer":             &s,
		"exported field":      struct{ Key Secret }{s},
		"unexported field":    struct{ key Secret }{s},
		"pointer to a struct": &struct{ key Secret }{s},
		"slice in a field":    struct{ keys []Secret }{[]Secret{s}},
		"map in a field":      struct{ keys map[string]Secret }{map[string]Secret{"a": s}},
	}
	for name, holder := range holders {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o", "%b", "%c",
			"%U"} {
			got := fmt.Sprintf(verb, holder)
			if slices.ContainsFunc(leaks, func(leak string) bool { return strings.Contains(got, leak) }) {
				t.Errorf("%s with %s: got %q, want no part of the secret", name, verb, got)
			}
		}
	}
}

// TestSecretIsKept: what is redacted is still what it was.
func TestSecretIsKept(t *testing.T) {
	var got string
	read := func(b []byte) error { got = string(b); return io.EOF }
	if err := SecretFrom([]byte("hunter2")).Use(read); err != io.EOF || got != "hunter2" {
		t.Errorf("use: got %q, %v, want hunter2 and the reader's error", got, err)
	}

	if err := (Secret{}).Use(read); err != io.EOF || got != "" {
		t.Errorf("use no secret: got %q, %v, want nothing and the reader's error", got, err)
	}

	if !(Secret{}).Empty() || !SecretFrom(nil).Empty() || NewSecret(1).Empty() {
		t.Error("empty: want the zero value and a secret of no bytes, and no other")
	}
}
