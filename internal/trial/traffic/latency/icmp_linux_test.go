package latency

import (
	"bytes"
	"testing"
)

func TestChecksum(t *testing.T) {
	// RFC 1071, section 3: the sum of these is 0xddf2.
	if got := checksum([]byte{0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7}); got != ^uint16(0xddf2) {
		t.Errorf("got %#x, want %#x", got, ^uint16(0xddf2))
	}

	b := []byte{icmpEchoRequest, 0, 0, 0, 1, 2, 3, 4, 5}
	sum := checksum(b)
	b[2], b[3] = byte(sum>>8), byte(sum)
	if got := checksum(b); got != 0 {
		t.Errorf("over a message with its checksum: got %#x, want 0", got)
	}
}

func TestICMPPayload(t *testing.T) {
	message := func(kind byte) []byte { return append([]byte{kind, 0, 0, 0, 0, 1, 0, 2}, "payload"...) }
	behind := func(header byte, rest []byte) []byte {
		return append(append([]byte{0x40 | header}, make([]byte, int(header)*4-1)...), rest...)
	}
	for _, test := range []struct {
		name string
		b    []byte
		ip   int
		raw  bool
		want string
	}{
		{"reply to a ping socket", message(0), 4, false, "payload"},
		{"reply to a raw socket", behind(5, message(0)), 4, true, "payload"},
		{"with options", behind(7, message(0)), 4, true, "payload"},
		{"ICMPv6", message(129), 6, false, "payload"},
		{"ICMPv6, raw", message(129), 6, true, "payload"},
		{"somebody's request", behind(5, message(8)), 4, true, ""},
		{"unreachable", message(3), 4, false, ""},
		{"a version's other type", message(0), 6, false, ""},
		{"cut", message(0)[:7], 4, false, ""},
		{"header beyond the end", []byte{0x4f, 0, 0}, 4, true, ""},
		{"header too short", append([]byte{0x41}, make([]byte, 40)...), 4, true, ""},
		{"nothing", nil, 4, true, ""},
	} {
		got, ok := icmpPayload(test.b, test.ip, test.raw)
		if string(got) != test.want || ok != (test.want != "") {
			t.Errorf("%s: got %q, %v, want %q", test.name, got, ok, test.want)
		}
	}
}

func FuzzICMPPayload(f *testing.F) {
	f.Add([]byte{0x45}, true, true)
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 1}, false, false)
	f.Fuzz(func(t *testing.T, b []byte, v6, raw bool) {
		ip := 4
		if v6 {
			ip = 6
		}

		payload, ok := icmpPayload(b, ip, raw)
		if !ok && payload != nil || !bytes.HasSuffix(b, payload) {
			t.Errorf("%x: got %x, %v", b, payload, ok)
		}
	})
}
