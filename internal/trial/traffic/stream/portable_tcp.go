package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// portableChunk is what one call moves at most. It bounds how far a sender's count can be behind at an edge
// of the window, since package net returns from a write only when all of it is taken.
const portableChunk = 64 << 10

// portableTCP is one end of a TCP connection that carries data one way, moved by package net. What it has
// sent is what the kernel has taken.
type portableTCP struct {
	traffic.ByteFlow
	conn    *net.TCPConn
	verify  bool
	pattern traffic.Pattern
	buffer  []byte
	corrupt int64 // owned by Run
	paced   *throttle
}

// connectPortableTCP makes one connection per flow, whoever sends in it.
func connectPortableTCP(ctx context.Context, l *traffic.Half, listening func(port int) error) error {
	q := l.Request
	conns, _, err := traffic.MakeConnections(ctx, q, l.Keys, listening)
	if err != nil {
		return err
	}
	var controls []string
	for i, c := range conns {
		f := &portableTCP{conn: c, verify: q.Load.Verify, pattern: traffic.NewPattern(q.Load.Tag, i),
			buffer: make([]byte, portableChunk), ByteFlow: traffic.ByteFlow{Key: l.Keys[i],
				Sends: l.Keys[i].Sends(q.Side), Addr: c.LocalAddr().String(),
				Table: record.NewTable("bytes")}}
		l.Flows[i] = f
		l.Workers = append(l.Workers, f)
		f.pattern.Fill(f.buffer, 0)
		if rate := q.Load.RateBps; rate > 0 && f.Sends { // each stream has an equal share
			f.paced = &throttle{perNs: rate / 8 / 1e9 / float64(len(l.Keys))}
		}
		name, failed := setCongestion(c, traffic.CongestionOf(q.Load, l.Keys[i]))
		if failed != nil {
			err = fmt.Errorf("set the congestion control of %s: %w", f.Name(), failed)
		}
		if name != "" && !slices.Contains(controls, name) {
			controls = append(controls, name)
		}
	}
	l.Mode = func() string { return "portable: a goroutine for each stream" }
	if len(controls) > 0 {
		l.Details["congestion"] = strings.Join(controls, "+") // in the order in which streams take them
	}
	return err
}

// Run moves data until it is over.
func (f *portableTCP) Run(p *traffic.Phases) error {
	if !f.Sends {
		return f.receive(p)
	}
	traffic.SleepUntil(p.Begin, &p.Abandoned)
	return f.send(p)
}

func (f *portableTCP) send(p *traffic.Phases) error {
	for !p.Abandoned.Load() && traffic.Monotonic() < p.Senders {
		b := f.buffer
		if f.verify {
			f.pattern.Fill(b, uint64(f.Count.Load()))
		}
		for len(b) > 0 {
			n, err := f.conn.Write(f.paced.share(b))
			f.Count.Add(int64(n))
			f.paced.wait(p, n)
			switch {
			case err != nil && p.Over(p.End): // the other end is done, by its own clock
				return nil
			case err != nil:
				return fmt.Errorf("send: %w", traffic.Cause(err))
			}
			b = b[n:]
		}
	}
	return nil
}

func (f *portableTCP) receive(p *traffic.Phases) error {
	for !p.Abandoned.Load() {
		n, err := f.conn.Read(f.buffer)
		if f.verify {
			f.corrupt += f.pattern.Mismatches(f.buffer[:n], uint64(f.Count.Load()))
		}
		f.Count.Add(int64(n))
		switch {
		case err == nil:
		case p.Over(p.End): // the sender stops a little after the window, by its own clock
			return nil
		case errors.Is(err, io.EOF):
			return errors.New("receive: the sender closed the connection before the end of the window")
		default:
			return fmt.Errorf("receive: %w", traffic.Cause(err))
		}
	}
	return nil
}

// Unblock ends what waits in a call; a sender's stream ends with what the kernel has taken.
func (f *portableTCP) Unblock(how traffic.Urgency) {
	switch {
	case how == traffic.AtOnce:
		f.conn.SetDeadline(time.Unix(1, 0))
	case f.Sends:
		f.conn.SetWriteDeadline(time.Unix(1, 0))
		f.conn.CloseWrite()
	}
}

// Report is of the window.
func (f *portableTCP) Report() traffic.FlowReport {
	r := f.ByteFlow.Report()
	if f.verify && !f.Sends {
		r.Verified, r.Corrupt = f.Count.Load()-f.corrupt, f.corrupt
	}
	return r
}

// Close drops what is still queued, so that nothing of this load is under way during the next one.
func (f *portableTCP) Close() {
	f.conn.SetLinger(0)
	f.conn.Close()
}
