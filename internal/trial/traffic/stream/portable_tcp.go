package stream

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// portableChunk is the size of one write in bytes. It limits how far a sender's count can lag at the start
// and the end of the window, because package net returns from a write only when the kernel has accepted
// all data.
const portableChunk = 64 << 10

// portableTCP is one end of a TCP connection that carries data in one direction, through package net.
// Bytes count as sent when the kernel has accepted them.
type portableTCP struct {
	byteStream
	conn *net.TCPConn
}

// connectPortableTCP opens one connection per flow, regardless of the flow's direction.
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
		if rate > 0 && f.Sends { // equal share for each stream
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

// Run moves data until the stream ends.
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

// Unblock ends blocked calls. A sender's stream ends after the bytes that the kernel has already accepted.
func (f *portableTCP) Unblock(how traffic.Urgency) {
	switch {
	case how == traffic.AtOnce:
		f.conn.SetDeadline(time.Unix(1, 0))
	case f.Sends:
		f.conn.SetWriteDeadline(time.Unix(1, 0))
		f.conn.CloseWrite()
	}
}

// Close closes the connection and discards queued data, so that no packet of this load is in transit
// during the next one.
func (f *portableTCP) Close() {
	f.conn.SetLinger(0)
	f.conn.Close()
}
