package bpf

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestWriterWritesWholeFrames reads what it writes as a router and a receiver would, with sums of its own;
// each slot is used again for another flow.
func TestWriterWritesWholeFrames(t *testing.T) {
	for _, ip := range []int{4, 6} {
		for _, more := range []int{0, 1, 700} {
			l, _ := testLoad(ip)
			l.PacketSize += more
			w := NewWriter(l)
			b := make([]byte, w.Size())
			w.Begin(b)
			for i, want := range []Datagram{
				{Flow: 0, Phase: Window, Seq: 7},
				{Flow: 1, Phase: Cooldown, Seq: 1<<32 - 1, Stamp: 1<<62 + 12345},
				{Flow: 0, Phase: Warmup},
			} {
				w.Put(b, want.Flow, want.Phase, want.Seq, want.Stamp)
				at := l.headers()
				n := add(b[at-udp:], pseudo(b, ip))
				if n != 0xffff {
					t.Errorf("IPv%d, %d bytes more, frame %d: sum of UDP %#x, want 0xffff", ip, more, i, n)
				}

				got, ok := ReadDatagram(b[at:], l.Tag)
				if diff := cmp.Diff(want, got); !ok || diff != "" {
					t.Errorf("IPv%d, %d bytes more, frame %d: read %v (-want +got):\n%s", ip, more, i, ok,
						diff)
				}

				whole := numbered(l, want)
				copy(whole[at-2:], b[at-2:at])
				if diff := cmp.Diff(whole, b); diff != "" {
					t.Errorf("IPv%d, %d bytes more, frame %d (-want +got):\n%s", ip, more, i, diff)
				}
			}
		}
	}
}

// sizeOf is the IP length of the frame with number seq in a flow.
func (l Load) sizeOf(flow int, seq uint32) int {
	if len(l.Sizes) == 0 {
		return l.PacketSize
	}
	return l.Sizes[(seq+uint32(flow))%uint32(len(l.Sizes))]
}

// numbered is a frame as it must be, but for the sum of UDP.
func numbered(l Load, d Datagram) []byte {
	l.Sizes, l.PacketSize = nil, l.sizeOf(d.Flow, d.Seq)
	b := l.frame(slices.Concat(l.Send, l.Receive)[d.Flow])
	payload := b[l.headers():]
	binary.BigEndian.PutUint32(payload[4:], d.Seq)
	binary.BigEndian.PutUint64(payload[8:], uint64(d.Stamp))
	binary.BigEndian.PutUint16(payload[16:], uint16(d.Phase<<14|d.Flow))
	return b
}

func FuzzReadDatagram(f *testing.F) {
	l, tuple := testLoad(4)
	f.Add(l.frame(tuple)[l.headers():], uint32(0x01020304))
	f.Add([]byte{}, uint32(0))
	f.Fuzz(func(t *testing.T, b []byte, tag uint32) {
		d, ok := ReadDatagram(b, tag)
		if !ok && d != (Datagram{}) {
			t.Errorf("got %+v beside a refusal, want nothing", d)
		}

		if ok && (len(b) < Header || d.Flow >= 1<<14 || d.Phase > 3) {
			t.Errorf("got %+v of %d bytes", d, len(b))
		}
	})
}
