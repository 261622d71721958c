package responsiveness

import (
	"testing"
)

func TestUnsentFollowsTheRate(t *testing.T) {
	for _, test := range []struct {
		bps            int64
		unsent, length int
	}{{0, 4096, 2048}, {1e6, 4096, 2048}, {100e6, 25000, 12500}, {500e6, 125000, 16384},
		{10e9, 262144, 16384}} {
		unsent, length := unsentFor(test.bps/8/10, 1e8)
		if unsent != test.unsent || length != test.length {
			t.Errorf("%d bit/s: %d bytes unsent in frames of %d, want %d and %d", test.bps, unsent, length,
				test.unsent, test.length)
		}
	}
}

func FuzzReadFrame(f *testing.F) {
	b := make([]byte, frameHeader)
	frame{kind: frameRequest, id: 7}.put(b)
	f.Add(b)
	frame{kind: frameBulk, length: bulkSize}.put(b)
	f.Add(b)
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, ok := readFrame(b)
		if !ok && got != (frame{}) || ok && got.length > bulkSize {
			t.Fatalf("%x: got %+v, %v", b, got, ok)
		}

		if ok {
			again := make([]byte, frameHeader)
			got.put(again)
			back, _ := readFrame(again)
			if back != got {
				t.Errorf("%+v comes back as %+v", got, back)
			}
		}
	})
}
