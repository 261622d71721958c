package stream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// connectTCP makes one connection per flow, whoever sends in it.
func connectTCP(ctx context.Context, q traffic.Request, keys []traffic.FlowKey,
	listening func(port int) error) (*traffic.Half,
	error) {
	ctx, cancel := context.WithTimeout(ctx, traffic.Patience)
	defer cancel()
	l := &traffic.Half{Request: q, Keys: keys, Flows: make([]traffic.Flow, len(keys)),
		Details: map[string]string{}}
	var conns []*net.TCPConn
	var err error
	if q.Listen {
		conns, err = traffic.AcceptFlows(ctx, q, len(keys), listening)
	} else {
		conns, err = traffic.DialFlows(ctx, q, keys)
	}
	defer func() {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
	}()
	if err != nil {
		return nil, err
	}
	way := tcpModeTo(q.Peer, q.Load.Verify, len(keys), len(traffic.AllowedCPUs()))
	shared := newTCPBuffers(q)
	for i, c := range conns {
		f, err := newTCPFlow(c, q, i, keys[i], way)
		if err != nil {
			l.Close()
			return nil, err
		}
		conns[i] = nil
		c.Close() // the flow has its own descriptor
		f.prepare(shared)
		l.Flows[i] = f
	}
	l.Workers = tcpWorkers(l.Flows, way.pool)
	l.Mode = way.String
	l.Details["congestion"] = tcpCongestion(l.Flows)
	return l, nil
}

// tcpWorkers gives each flow a thread, or deals them to one thread per core and way.
func tcpWorkers(flows []traffic.Flow, pool bool) []traffic.Worker {
	var crews []traffic.Worker
	var ways [2][]*tcpFlow // receivers, senders
	for _, f := range flows {
		f := f.(*tcpFlow)
		switch {
		case !pool:
			crews = append(crews, f)
		case f.sends:
			ways[1] = append(ways[1], f)
		default:
			ways[0] = append(ways[0], f)
		}
	}
	for w, of := range ways {
		for _, hand := range traffic.Deal(of, len(traffic.AllowedCPUs())) {
			crews = append(crews, &tcpPool{flows: hand, sends: w == 1})
		}
	}
	return crews
}

// tcpCongestion names the controls in use, each once, in the order in which streams take them.
func tcpCongestion(flows []traffic.Flow) string {
	var names []string
	for _, f := range flows {
		if cc := f.(*tcpFlow).congestion; !slices.Contains(names, cc) {
			names = append(names, cc)
		}
	}
	return strings.Join(names, "+")
}

// newTCPFlow takes the descriptor out of Go's poller: a thread that blocks in the kernel is what the
// measurement wants.
func newTCPFlow(c *net.TCPConn, q traffic.Request, i int, k traffic.FlowKey, way tcpMode) (*tcpFlow, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("take over connection: %w", err)
	}
	fd := -1
	outer := raw.Control(func(old uintptr) {
		if fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0); err == nil {
			err = unix.SetNonblock(fd, false)
		}
	})
	if err = errors.Join(outer, err); err != nil {
		if fd >= 0 {
			unix.Close(fd)
		}
		return nil, fmt.Errorf("take over connection: %w", err)
	}
	f := &tcpFlow{Socket: traffic.Socket{Fd: fd}, key: k, sends: k.Sends(q.Side), mode: way,
		pattern: traffic.NewPattern(q.Load.Tag, i), verify: q.Load.Verify}
	if err := f.settle(q); err != nil {
		unix.Close(fd)
		return nil, err
	}
	f.addr = f.Local()
	return f, nil
}

// settle sets what may differ between the streams of one listener.
func (f *tcpFlow) settle(q traffic.Request) error {
	want := traffic.CongestionOf(q.Load, f.key)
	if want != "" {
		unix.SetsockoptString(f.Fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, want) // read back below
	}
	cc, err := unix.GetsockoptString(f.Fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	if err != nil || want != "" && cc != want {
		return fmt.Errorf("congestion control is %q after setting %q: %v", cc, want, err)
	}
	f.congestion = cc
	if q.Load.RateBps <= 0 || !f.sends {
		return nil
	}
	// The kernel paces the payload; each stream has an equal share.
	bytes := q.Load.RateBps / 8 / float64(len(traffic.FlowsOf(q.Load)))
	if err := traffic.SetPacing(f.Fd, uint64(math.Ceil(bytes))); err != nil {
		return fmt.Errorf("pace at %.0f bytes per second: %w", bytes, err)
	}
	return nil
}
