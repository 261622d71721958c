package stream

import (
	"errors"
	"fmt"
	"io"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// byteStream moves the bytes of one end of a TCP flow, on any system.
type byteStream struct {
	traffic.ByteFlow // Count is the number of payload bytes passed to or received from the kernel
	verify           bool
	pattern          traffic.Pattern
	buffer           []byte
	corrupt          int64 // number of wrong bytes; used by Run
	held             *throttle
}

func newByteStream(q traffic.Request, i int, k traffic.FlowKey) byteStream {
	return byteStream{
		pattern:  traffic.NewPattern(q.Load.Tag, i),
		verify:   q.Load.Verify,
		ByteFlow: traffic.ByteFlow{Key: k, Sends: k.Sends(q.Side), Table: record.NewTable("bytes")},
	}
}

// send sends data until the time at which senders stop.
func (f *byteStream) send(p *traffic.Phases, give func([]byte) (int, error)) error {
	for !p.Abandoned.Load() && traffic.Monotonic() < p.Senders {
		if over, err := f.sendSome(p, len(f.buffer), give); over || err != nil {
			return err
		}
	}
	return nil
}

// sendSome sends up to limit bytes with one system call. over is true if the stream has ended because the
// other end, by its own clock, has finished.
func (f *byteStream) sendSome(p *traffic.Phases, limit int, give func([]byte) (int, error)) (over bool,
	err error) {
	b := f.buffer
	at := f.Count.Load()
	if !f.verify { // because the content does not matter
		b = b[at%int64(len(b)):]
	}

	b = f.held.share(b[:min(len(b), limit)])
	if f.verify {
		f.pattern.Fill(b, uint64(at))
	}

	n, err := give(b)
	f.Count.Add(int64(max(n, 0)))
	f.held.wait(p, n)
	switch {
	case err == nil, traffic.Again(err):
		return false, nil
	case p.Over(p.End):
		return true, nil
	}

	return false, fmt.Errorf("send: %w", host.Cause(err))
}

// received processes the next bytes of the stream.
func (f *byteStream) received(b []byte) {
	if f.verify {
		f.corrupt += f.pattern.Mismatches(b, uint64(f.Count.Load()))
	}

	f.Count.Add(int64(len(b)))
}

// ended returns nil if a receive error is expected because the window has ended, otherwise an error. err
// is io.EOF if the sender has closed the connection. The sender stops shortly after the window, by its own
// clock.
func ended(p *traffic.Phases, err error) error {
	switch {
	case p.Over(p.End):
		return nil
	case err == io.EOF:
		return errors.New("receive: the sender closed the connection before the end of the window")
	}
	return fmt.Errorf("receive: %w", host.Cause(err))
}

// Report returns the counts. For a receiver, they include the result of verification.
func (f *byteStream) Report() traffic.FlowReport {
	r := f.ByteFlow.Report()
	if f.verify && !f.Sends {
		r.Verified = f.Count.Load() - f.corrupt
		r.Corrupt = f.corrupt
	}
	return r
}
