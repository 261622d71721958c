package agent

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// extended is a sock_extended_err with the address of who sent the error.
func extended(origin, kind byte, family uint16, addr []byte) []byte {
	b := make([]byte, 16)
	b[4], b[5] = origin, kind
	b = binary.NativeEndian.AppendUint16(b, family)
	b = append(b, 0, 0)
	if family == unix.AF_INET6 {
		b = append(b, 0, 0, 0, 0) // flow
	}

	b = append(b, addr...)
	return append(b, make([]byte, 8)...)
}

func TestTimeExceeded(t *testing.T) {
	v4 := netip.MustParseAddr("192.0.2.1")
	v6 := netip.MustParseAddr("2001:db8::1")
	for _, tt := range []struct {
		name string
		b    []byte
		want netip.Addr
	}{
		{"IPv4", extended(unix.SO_EE_ORIGIN_ICMP, 11, unix.AF_INET, v4.AsSlice()), v4},
		{"IPv6", extended(unix.SO_EE_ORIGIN_ICMP6, 3, unix.AF_INET6, v6.AsSlice()), v6},
		{"port unreachable", extended(unix.SO_EE_ORIGIN_ICMP, 3, unix.AF_INET, v4.AsSlice()), netip.Addr{}},
		{"too long a packet", extended(unix.SO_EE_ORIGIN_LOCAL, 0, unix.AF_INET, v4.AsSlice()), netip.Addr{}},
		{"cut short", extended(unix.SO_EE_ORIGIN_ICMP6, 3, unix.AF_INET6, v6.AsSlice())[:30], netip.Addr{}},
		{"nothing", nil, netip.Addr{}},
	} {
		got, ok := timeExceeded(tt.b)
		if got != tt.want || ok != tt.want.IsValid() {
			t.Errorf("%s: got %v, %v, want %v", tt.name, got, ok, tt.want)
		}
	}
}

func FuzzTimeExceeded(f *testing.F) {
	f.Add(extended(unix.SO_EE_ORIGIN_ICMP, 11, unix.AF_INET, []byte{192, 0, 2, 1}))
	f.Add(extended(unix.SO_EE_ORIGIN_ICMP6, 3, unix.AF_INET6, make([]byte, 16)))
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, ok := timeExceeded(b); ok != got.IsValid() {
			t.Errorf("%x: got %v, %v", b, got, ok)
		}
	})
}
