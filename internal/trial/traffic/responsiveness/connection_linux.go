package responsiveness

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// A connection of engine responsiveness carries frames. A frame consists of a header with kind, length and
// number, and as many bytes as the length states. As on an HTTP/2 connection, a request waits for the bulk
// frames that were passed to the kernel before it. The amount of unsent data in the kernel is limited, so
// that the measurement covers the queue of the path and not that of the sender.
const (
	frameHeader = 16
	bulkSize    = 16 << 10 // maximum length of a frame
	outboxRoom  = 4        // enough, because a connection has only one request or response at a time
)

// The limit on unsent data in the kernel is the amount of data that the connection sends in two milliseconds,
// within bounds. If a fixed limit were large enough for a fast path, a slow path would take half a second to
// send that much data.
const (
	unsentTime  = 2 * time.Millisecond
	minUnsent   = 4 << 10
	maxUnsent   = 256 << 10
	unsentFirst = 16 << 10
	adaptEvery  = 100 * time.Millisecond
)

// unsentFor returns the limit of unsent data for a connection that carried the given number of bytes in ns
// nanoseconds. length is the length of the connection's bulk frames, which is at most half the limit.
func unsentFor(bytes, ns int64) (unsent, length int) {
	perTime := float64(bytes) * float64(unsentTime) / float64(max(ns, 1))
	unsent = int(min(max(perTime, minUnsent), maxUnsent))
	return unsent, min(unsent/2, bulkSize)
}

type frameKind byte

const (
	frameBulk frameKind = iota + 1
	frameRequest
	frameResponse
)

type frame struct {
	kind   frameKind
	length uint32
	id     uint64
}

func (f frame) put(b []byte) {
	clear(b[:frameHeader])
	b[0] = byte(f.kind)
	binary.BigEndian.PutUint32(b[4:], f.length)
	binary.BigEndian.PutUint64(b[8:], f.id)
}

// readFrame parses the header of a frame. Only bulk frames have data.
func readFrame(b []byte) (frame, bool) {
	if len(b) < frameHeader {
		return frame{}, false
	}

	f := frame{frameKind(b[0]), binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint64(b[8:])}
	ok := f.kind == frameBulk && f.length <= bulkSize || (f.kind == frameRequest ||
		f.kind == frameResponse) && f.length == 0
	if !ok {
		return frame{}, false
	}

	return f, true
}

// requestFlow is one end of a connection that carries bulk data in one direction, and requests and
// responses in both directions.
type requestFlow struct {
	traffic.Socket
	traffic.ByteFlow // counts the bulk data

	outbox   chan frame      // frames to send between bulk frames
	answered func(id uint64) // called with the number of a request when its response arrives
	quit     chan struct{}   // closed by the first Unblock
	quitOnce sync.Once
	nothing  [bulkSize]byte // buffer for receiving with MSG_TRUNC, which does not write to the buffer
}

func (f *requestFlow) Run(p *traffic.Phases) error {
	var reader sync.WaitGroup
	var readErr error
	reader.Go(func() {
		traffic.OwnThread()
		if readErr = f.receive(p); readErr != nil {
			f.Unblock(traffic.AtOnce)
		}
	})
	traffic.SleepUntil(p.Begin, &p.Abandoned)
	err := f.send(p)
	if err != nil {
		f.Unblock(traffic.AtOnce)
	}

	reader.Wait()
	return cmp.Or(err, readErr)
}

func (f *requestFlow) send(p *traffic.Phases) error {
	b := make([]byte, frameHeader+bulkSize)
	length := unsentFirst / 2
	adapted := traffic.Monotonic()
	var counted int64
	for !p.Over(p.Senders) {
		now := traffic.Monotonic()
		if now-adapted >= int64(adaptEvery) {
			n := f.Count.Load()
			var unsent int
			unsent, length = unsentFor(n-counted, now-adapted)
			unix.SetsockoptInt(f.FD, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsent)
			adapted, counted = now, n
		}

		x := frame{kind: frameBulk, length: uint32(length)}
		if f.Sends {
			select {
			case x = <-f.outbox:
			default:
			}
		} else {
			select {
			case x = <-f.outbox:
			case <-f.quit:
				return nil
			}
		}

		x.put(b)
		if err := f.write(p, b[:frameHeader+x.length]); err != nil {
			return err
		}
	}

	return nil
}

func (f *requestFlow) write(p *traffic.Phases, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(f.FD, b)
		if err == unix.EINTR {
			continue
		}

		if err != nil {
			if p.Over(p.Senders) {
				return nil
			}
			return fmt.Errorf("send: %w", err)
		}

		if f.Sends {
			f.Count.Add(int64(n))
		}

		b = b[n:]
	}
	return nil
}

func (f *requestFlow) receive(p *traffic.Phases) error {
	header := make([]byte, frameHeader)
	for !p.Abandoned.Load() {
		err := f.take(header, 0)
		x, ok := readFrame(header)
		switch {
		case err == io.EOF && p.Over(p.End), err != nil && p.Over(p.Senders):
			return nil
		case err == io.EOF:
			return fmt.Errorf("receive: the other end closed the connection before the end of the window")
		case err != nil:
			return fmt.Errorf("receive: %w", err)
		case !ok:
			return fmt.Errorf("receive: no frame of ours")
		case x.kind == frameRequest:
			x.kind = frameResponse
			select {
			case f.outbox <- x:
			default: // ignored, because the peer sends requests faster than they are answered
				return fmt.Errorf("receive: more than %d requests at once", outboxRoom)
			}
		case x.kind == frameResponse:
			if f.answered != nil {
				f.answered(x.id)
			}
		}

		// With MSG_TRUNC, the data is not copied.
		if err := f.take(f.nothing[:x.length], unix.MSG_TRUNC); err != nil {
			if p.Over(p.End) {
				return nil
			}
			return fmt.Errorf("receive: %w", err)
		}
	}
	return nil
}

// take receives exactly len(b) bytes.
func (f *requestFlow) take(b []byte, flags int) error {
	for len(b) > 0 {
		n, _, errno := unix.Syscall6(unix.SYS_RECVFROM, uintptr(f.FD), uintptr(unsafe.Pointer(&b[0])),
			uintptr(len(b)), uintptr(flags), 0, 0)
		switch {
		case errno == unix.EINTR:
			continue
		case errno != 0:
			return errno
		case n == 0:
			return io.EOF
		}

		if !f.Sends {
			f.Count.Add(int64(n))
		}

		b = b[n:]
	}
	return nil
}

func (f *requestFlow) Unblock(how traffic.Urgency) {
	f.quitOnce.Do(func() { close(f.quit) })
	if how == traffic.AtOnce {
		f.Shutdown(unix.SHUT_RDWR)
		return
	}

	f.Shutdown(unix.SHUT_WR)
}
