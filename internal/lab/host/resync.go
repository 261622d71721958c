package host

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
)

// resync makes a line readable like a connection (see ConnectLine): Read returns only whole frames with valid
// checksums, and skips all other bytes.
type resync struct {
	io.ReadWriteCloser

	// The following fields are used only by the reader.
	buf   []byte // received bytes: at most one whole frame, then unchecked bytes
	whole int    // length of the valid frame at the start of buf
	seen  int    // length of the part of an incomplete frame that was already searched for another header
	err   error
}

// readAhead is the maximum number of bytes to read from the line at once.
const readAhead = 64 << 10

func (r *resync) Read(p []byte) (int, error) {
	for r.whole == 0 {
		if r.seek(); r.whole > 0 {
			break
		}

		if r.err != nil {
			return 0, r.err
		}

		r.fill()
	}

	n := copy(p, r.buf[:r.whole])
	r.buf, r.whole = r.buf[n:], r.whole-n
	return n, nil
}

// fill reads available bytes from the line and appends them to buf.
func (r *resync) fill() {
	have := len(r.buf)
	if cap(r.buf)-have < readAhead {
		grown := make([]byte, have, 2*have+readAhead)
		copy(grown, r.buf)
		r.buf = grown
	}

	n, err := r.ReadWriteCloser.Read(r.buf[have : have+readAhead])
	r.buf = r.buf[:have+n]
	r.err = err
}

// seek skips to the next frame with a valid header, and checks the payload of the frame once it is complete.
func (r *resync) seek() {
	for {
		at, found := nextHeader(r.buf)
		r.skip(at)
		if !found {
			return
		}

		size := headerSize + int(binary.BigEndian.Uint32(r.buf[8:]))
		if len(r.buf) < size {
			if !r.broken() {
				return
			}
			continue
		}

		if crc32.ChecksumIEEE(r.buf[headerSize:size]) == binary.BigEndian.Uint32(r.buf[12:]) {
			r.whole, r.seen = size, 0
			return
		}

		r.skip(1)
	}
}

func (r *resync) skip(n int) {
	r.buf = r.buf[n:]
	if n > 0 {
		r.seen = 0
	}
}

// broken reports whether the incomplete frame at the start of buf contains the header of another frame. If
// so, it skips to that header, because bytes of the incomplete frame must have been lost. A JSON payload
// cannot contain a header, because JSON has no control characters. A random secret resembles a header once in
// 2^56 positions.
func (r *resync) broken() bool {
	from := max(headerSize, r.seen)
	if from > len(r.buf) {
		return false
	}

	at, found := nextHeader(r.buf[from:])
	if found {
		r.skip(from + at)
		return true
	}

	r.seen = from + at
	return false
}

// nextHeader returns the position of the first valid header. If there is none, at is the position at which an
// incomplete header may begin.
func nextHeader(b []byte) (at int, found bool) {
	for {
		i := bytes.IndexByte(b[at:], 'C')
		if i < 0 {
			return len(b), false
		}

		at += i
		h := b[at:]
		switch {
		case len(h) > 1 && h[1] != 'P':
		case len(h) < headerSize:
			return at, false
		case crc32.ChecksumIEEE(h[:16]) == binary.BigEndian.Uint32(h[16:headerSize]) &&
			binary.BigEndian.Uint32(h[8:]) <= maxPayload:
			return at, true
		}

		at++
	}
}
