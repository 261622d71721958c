package latency

import (
	"context"
	"encoding/binary"
	"net/netip"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// connectEcho prepares the opener of the echo probe.
func connectEcho(ctx context.Context, q traffic.Request) (traffic.Running, error) {
	var p *stampedProber
	one := []traffic.FlowKey{{Stream: 1}}
	err := traffic.OpenFlows(ctx, q, one, func(_, fd int, _, _ netip.AddrPort) error {
		p = newStampedProber(fd, q, framing{})
		return nil
	})
	if err == nil {
		return p.ready(), nil
	}

	if p != nil {
		p.Close()
	}

	return nil, err
}

// stampedProber sends and receives probes with the kernel's time stamps. Each of its goroutines has its own
// thread.
type stampedProber struct {
	*prober
	*stampedSocket
	queued []stamps // time stamps of sent probes, assigned to them at the end
}

func newStampedProber(fd int, q traffic.Request, f framing) *stampedProber {
	p := newProber(q, func(b []byte) (int, error) { return traffic.Write(fd, b) })
	p.framing = f
	return &stampedProber{prober: p, stampedSocket: newStampedSocket(fd, q.Load.PacketSize+f.room)}
}

// ready makes the kernel number the datagrams sent from now on.
func (p *stampedProber) ready() *stampedProber {
	unix.SetsockoptInt(p.FD, unix.SOL_SOCKET, unix.SO_TIMESTAMPING, timestampingProbe)
	return p
}

// Run sends probes until the end of the timeline. It returns a report in parts.
func (p *stampedProber) Run(ctx context.Context, w record.Window, say func(traffic.Progress) error) ([]any,
	error) {
	if err := p.run(ctx, w, say, p.send, p.receive); err != nil {
		return nil, err
	}

	p.join()
	return parts(p.report()), nil
}

func (p *stampedProber) send() {
	tids := make([]atomic.Int64, 1)
	tids[0].Store(int64(traffic.OwnThread()))
	p.scheduling = traffic.Raise()
	p.sendAll(tids)
}

func (p *stampedProber) receive() {
	traffic.OwnThread()
	traffic.Raise()
	p.queued = make([]stamps, 0, p.due.N)
	for p.listening() {
		n, control, err := p.stampedSocket.receive(0) // waits for at most receiveTimeout
		at := traffic.Monotonic()
		if err == nil {
			b, a := p.enter(p.buffer[:n], at)
			if a != nil {
				a.rx = readStamps(control).at
				a.residence = int64(binary.BigEndian.Uint64(b[traffic.DatagramHeader:]))
			}
		}

		for {
			_, control, err := p.stampedSocket.receive(unix.MSG_ERRQUEUE | unix.MSG_DONTWAIT)
			if err != nil {
				break
			}

			s := readStamps(control)
			if s.tx && s.who == stampEntersQueue {
				p.queued = append(p.queued, s)
			}
		}
	}
}

// join assigns the time stamps to the probes. If sending a datagram failed, it assigns none, because it is
// unknown whether the kernel counted the datagram.
func (p *stampedProber) join() {
	for _, s := range p.queued {
		if p.failed > 0 || int(s.id) >= len(p.taken) {
			continue
		}

		a := &p.answers[p.taken[s.id]]
		if a.tx == 0 {
			a.tx = s.at
		}
	}
}
