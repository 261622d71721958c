package bpf

import (
	"encoding/binary"
	"maps"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
)

// TestObjectsOfBothByteOrders reads what is committed for machines of either order: the sizes are those of
// the structures that frames_linux.go mirrors.
func TestObjectsOfBothByteOrders(t *testing.T) {
	for _, name := range []string{"frames_bpfel.o", "frames_bpfeb.o"} {
		spec, err := ebpf.LoadCollectionSpec(name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}

		got := map[string]uint32{}
		for name, m := range spec.Maps {
			got[name] = m.ValueSize
		}

		want := map[string]uint32{".rodata": 312, ".bss": 168 + 32*MaxFlows, "port": 4,
			"arrived": 112, "seen": 8 * 4096, "delays": 8 * (delayBuckets + 1)}
		diff := cmp.Diff(want, got)
		if diff != "" {
			t.Errorf("%s: sizes of maps (-want +got):\n%s", name, diff)
		}

		if got := slices.Sorted(maps.Keys(spec.Programs)); !slices.Equal(got, []string{"frames", "pass"}) {
			t.Errorf("%s: got programs %v", name, got)
		}
	}
}

// testLoad is a load of the smallest packets in two flows, and the first of these.
func testLoad(ip int) (Load, Tuple) {
	from := netip.MustParseAddrPort("198.18.1.2:40001")
	to := netip.MustParseAddrPort("198.18.2.2:20000")
	if ip == 6 {
		from, to = netip.MustParseAddrPort("[2001:2::1]:40001"), netip.MustParseAddrPort("[2001:2::2]:20000")
	}

	t := Tuple{from, to}
	l := Load{
		IP:         ip,
		Tag:        0x01020304,
		PacketSize: 46,
		Send:       []Tuple{t, {netip.AddrPortFrom(from.Addr(), 40777), to}},
		Source:     net.HardwareAddr{2, 0, 0, 0, 0, 1},
		Next:       net.HardwareAddr{2, 0, 0, 0, 0, 2},
	}
	if ip == 6 {
		l.PacketSize = 66
	}

	return l, t
}

// TestFrameIsRight reads a frame as a router would, with sums of its own.
func TestFrameIsRight(t *testing.T) {
	for _, ip := range []int{4, 6} {
		for _, more := range []int{0, 1, 700} {
			l, tuple := testLoad(ip)
			l.PacketSize += more
			l.DSCP = 46
			b := l.frame(tuple)
			binary.NativeEndian.PutUint16(b[l.headers()-2:], ^fold(uint64(l.constant(b))))
			if len(b) != l.PacketSize+ethernet {
				t.Errorf("IPv%d: frame of %d bytes, want %d", ip, len(b), l.PacketSize+ethernet)
			}

			if n := add(b[l.headers()-udp:], pseudo(b, ip)); n != 0xffff {
				t.Errorf("IPv%d, %d bytes: sum of UDP %#x, want 0xffff", ip, l.PacketSize, n)
			}

			if n := add(b[ethernet:ethernet+20], 0); ip == 4 && n != 0xffff {
				t.Errorf("sum of the IPv4 header: %#x, want 0xffff", n)
			}

			class := map[int]byte{4: b[ethernet+1], 6: b[ethernet]<<4 | b[ethernet+1]>>4}[ip]
			if class != 46<<2 {
				t.Errorf("IPv%d: traffic class %#x, want DSCP 46 (%#x)", ip, class, 46<<2)
			}

			ttl := map[int]byte{4: b[ethernet+8], 6: b[ethernet+7]}[ip]
			if ttl != 64 {
				t.Errorf("IPv%d: time to live %d, want 64", ip, ttl)
			}
		}
	}
}

// add is RFC 1071's sum, written anew: big endian, byte by byte.
func add(b []byte, s uint32) uint32 {
	for i, c := range b {
		s += uint32(c) << (8 * (1 - i%2))
	}

	for s > 0xffff {
		s = s&0xffff + s>>16
	}
	return s
}

func pseudo(b []byte, ip int) uint32 {
	addresses := b[ethernet+12 : ethernet+20]
	length := uint32(len(b) - ethernet - 20)
	if ip == 6 {
		addresses, length = b[ethernet+8:ethernet+40], uint32(len(b)-ethernet-40)
	}

	return add(addresses, 17+length)
}

func TestPace(t *testing.T) {
	tests := []struct {
		pps  float64
		want pace
	}{
		{0, pace{burst: 61, stamp: 61, batch: 64}},
		{1000, pace{gap: 1e6, debt: 15e6, burst: 1, stamp: 1, batch: 1}},
		{100_000, pace{gap: 10_000, debt: 15e6, burst: 1, stamp: 1, batch: 1}},
		{300_000, pace{gap: 10_000, debt: 15e6, burst: 3, stamp: 61, batch: 3}},
		{1e6, pace{gap: 8000, debt: 15e6, burst: 8, stamp: 61, batch: 8}},
		{3e6, pace{gap: 2666, part: 0xAAAAAA00, debt: 15e6, burst: 8, stamp: 61, batch: 8}},
	}
	for _, tt := range tests {
		got := paceOf(tt.pps)
		if got.part>>12 == tt.want.part>>12 {
			got.part = tt.want.part // a float64 has no more digits
		}

		diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(pace{}))
		if diff != "" {
			t.Errorf("%v pps (-want +got):\n%s", tt.pps, diff)
		}
	}
}

func TestDelayBuckets(t *testing.T) {
	for i, want := range map[int]int64{0: 0, 63: 63, 64: 64, 65: 66, 95: 126, 96: 128, 128: 256,
		1183: 1<<41 - 1<<35} {
		got := DelayBucket(i)
		if got != want {
			t.Errorf("bucket %d: from %d ns, want %d", i, got, want)
		}
	}

	for i := range delayBuckets - 1 {
		if DelayBucket(i) >= DelayBucket(i+1) {
			t.Fatalf("bucket %d begins at %d ns, the next at %d", i, DelayBucket(i), DelayBucket(i+1))
		}
	}
}
