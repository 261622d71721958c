package latency

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// ServePortable implements the node side of the probe with package net alone. It has no kernel time stamps,
// so round-trip times include the wake-up times of the processes at both ends, even if the other end has
// kernel time stamps.
func ServePortable(ctx context.Context, s host.Session) error {
	return serveEcho(ctx, s, func(at *net.UDPConn, prober netip.AddrPort, _ int) (echoSocket, error) {
		return &portableEcho{at, prober, make([]byte, 1<<16)}, nil
	}, newPortableProber)
}

// portableWait is the interval at which a receiver checks whether to end.
const portableWait = 20 * time.Millisecond

// portableEcho implements echoSocket without time stamps.
type portableEcho struct {
	*net.UDPConn
	prober netip.AddrPort
	buffer []byte
}

func (*portableEcho) settle() (tid int, scheduling string) { return 0, "normal" }

func (e *portableEcho) receive() (b []byte, arrived int64) {
	e.SetReadDeadline(time.Now().Add(portableWait))
	n, from, err := e.ReadFromUDPAddrPort(e.buffer)
	if err != nil || from != e.prober {
		return nil, 0
	}

	return e.buffer[:n], 0
}

func (e *portableEcho) reply(b []byte) error {
	_, err := e.WriteToUDPAddrPort(b, e.prober)
	return err
}

func (e *portableEcho) Close() { e.UDPConn.Close() }

// portableProber sends and receives probes through a socket of package net.
type portableProber struct {
	*prober
	conn *net.UDPConn
}

func newPortableProber(ctx context.Context, q traffic.Request) (traffic.Running, error) {
	p := &portableProber{}
	one := []traffic.FlowKey{{Stream: 1}}
	err := traffic.SayHello(ctx, q, one, func(_ int, c *net.UDPConn) (func(), error) {
		p.prober = newProber(q, c.Write)
		p.conn = c
		return func() {}, nil
	})
	if err == nil {
		return p, nil
	}

	if p.conn != nil {
		p.Close()
	}

	return nil, err
}

// Close closes the socket.
func (p *portableProber) Close() { p.conn.Close() }

// Run sends probes until the end of the timeline.
func (p *portableProber) Run(ctx context.Context, w record.Window, say func(traffic.Progress) error) ([]any,
	error) {
	if err := p.run(ctx, w, say, func() { p.sendAll(nil) }, p.receive); err != nil {
		return nil, err
	}
	return parts(p.report()), nil
}

func (p *portableProber) receive() {
	for b := make([]byte, 1<<16); p.listening(); {
		p.conn.SetReadDeadline(time.Now().Add(portableWait))
		n, err := p.conn.Read(b)
		at := traffic.Monotonic()
		if err == nil {
			p.enter(b[:n], at)
		} else if !traffic.TimedOut(err) {
			host.Pause(context.Background(), time.Millisecond) // after an ICMP error
		}
	}
}
