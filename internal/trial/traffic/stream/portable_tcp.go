package stream

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// portableChunk bounds one call, and thus how far a sender's count can lag at an edge of the window, since
// package net returns from a write only when everything is accepted.
const portableChunk = 64 << 10

// portableTCP is one end of a TCP connection that carries data one way, moved by package net. Bytes that the
// kernel has accepted count as sent.
type portableTCP struct {
	byteStream
	conn *net.TCPConn
}

// connectPortableTCP makes one connection per flow, whichever end sends in it.
func connectPortableTCP(ctx context.Context, l *traffic.Endpoint) error {
	q := l.Request
	conns, _, err := traffic.MakeConnections(ctx, l.Part, l.Keys)
	if err != nil {
		return err
	}

	for i, c := range conns {
		f := &portableTCP{newByteStream(q, i, l.Keys[i]), c}
		f.Addr = c.LocalAddr().String()
		l.Flows[i] = f
		l.Workers = append(l.Workers, f)
		f.buffer = make([]byte, portableChunk)
		f.pattern.Fill(f.buffer, 0)
		rate := q.Load.RateBps
		if rate > 0 && f.Sends { // each stream has an equal share
			f.held = &throttle{perNs: rate / 8 / 1e9 / float64(len(l.Keys))}
		}

		failed := traffic.Control(c, func(fd int) error {
			name, err := traffic.SetCongestion(fd, traffic.CongestionOf(q.Load, l.Keys[i]))
			l.UsesCongestion(name)
			return err
		})
		if failed != nil {
			err = fmt.Errorf("set the congestion control of %s: %w", f.Name(), failed)
		}
	}

	l.Mode = func() string { return "portable: a goroutine for each stream" }
	return err
}

// Run moves data until it is over.
func (f *portableTCP) Run(p *traffic.Phases) error {
	if !f.Sends {
		return f.receive(p)
	}

	traffic.SleepUntil(p.Begin, &p.Abandoned)
	return f.send(p, f.conn.Write)
}

func (f *portableTCP) receive(p *traffic.Phases) error {
	for !p.Abandoned.Load() {
		n, err := f.conn.Read(f.buffer)
		f.received(f.buffer[:n])
		if err != nil {
			return ended(p, err)
		}
	}
	return nil
}

// Unblock ends waiting calls. A sender's stream ends with the bytes that the kernel has accepted.
func (f *portableTCP) Unblock(how traffic.Urgency) {
	switch {
	case how == traffic.AtOnce:
		f.conn.SetDeadline(time.Unix(1, 0))
	case f.Sends:
		f.conn.SetWriteDeadline(time.Unix(1, 0))
		f.conn.CloseWrite()
	}
}

// Close drops what is still queued, so that no packet of this load is in transit during the next one.
func (f *portableTCP) Close() {
	f.conn.SetLinger(0)
	f.conn.Close()
}
