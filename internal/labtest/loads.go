package labtest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Ends returns both endpoints of the path with the given slot.
func Ends(t testing.TB, l *lab.Lab, slot, ip int) (near, far traffic.End) {
	t.Helper()
	ctx := Context(t)
	for i, end := range []*traffic.End{&near, &far} {
		name := []string{l.Topology.Near, l.Topology.Far}[i]
		n := nodeOf(t, l, name)
		offset, _, err := n.Agent.Clock(ctx)
		must(t, err)
		a := l.Address(slot, i, ip)
		*end = traffic.End{Node: name, Agent: n.Agent, Addr: a, Target: a, Offset: offset}
		if port, ok := l.Neighbor(name); ok {
			end.Next = &traffic.Neighbor{
				Node:   port.Node,
				Agent:  nodeOf(t, l, port.Node).Agent,
				Device: port.Port,
			}
		}
	}

	return near, far
}

// Conductor implements traffic.Conductor for one engine, with a warm-up of a fifth of the window.
type Conductor struct {
	Length time.Duration
	Drain  time.Duration // Drain is the time to wait for packets of the window, at least 20 ms.
	Start  func()        // Start, if not nil, is called when the times are fixed.

	mu     sync.Mutex
	window record.Window
}

// Ready implements traffic.Conductor.
func (c *Conductor) Ready(context.Context) (record.Window, error) {
	begin := host.Monotonic() + int64(15*time.Millisecond)
	w := record.Window{Begin: begin, Start: begin + int64(c.Length/5)}
	w.End = w.Start + int64(c.Length)
	w.Stop = w.End + int64(max(c.Drain, 20*time.Millisecond))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.window = w
	if c.Start != nil {
		c.Start()
	}

	return w, nil
}

// Progress implements traffic.Conductor.
func (c *Conductor) Progress(traffic.Progress) {}

// Loads returns loads for testing engines. Rates are low: the suite checks counts, not speed.
func Loads() map[string]record.Load {
	base := record.Load{
		Protocol:   "tcp",
		Direction:  record.Up,
		Streams:    1,
		IP:         4,
		Congestion: "cubic",
		Opener:     "near",
		Port:       20000,
		Duration:   250 * time.Millisecond,
		Warmup:     50 * time.Millisecond,
		Interval:   50 * time.Millisecond,
		Tag:        "suite",
	}
	udp, counted := base, base
	udp.Protocol = "udp"
	counted.Protocol = "udp"
	counted.UDPMode = record.UDPCount
	with := func(l record.Load, change func(l *record.Load)) record.Load {
		change(&l)
		return l
	}
	loads := map[string]record.Load{
		"tcp up": base,
		"tcp down, 4": with(base, func(l *record.Load) {
			l.Direction = record.Down
			l.Streams = 4
		}),
		"tcp both, IPv6": with(base, func(l *record.Load) {
			l.Direction = record.Both
			l.IP = 6
		}),
		"tcp far opens":   with(base, func(l *record.Load) { l.Opener = "far" }),
		"tcp, 40 streams": with(base, func(l *record.Load) { l.Streams, l.RateBps = 40, 200e6 }),
		"tcp, every byte": with(base, func(l *record.Load) { l.Verify = true }),
		"tcp paced, marked": with(base, func(l *record.Load) {
			l.RateBps = 50e6
			l.DSCP = 46
			l.MSS = 1000
			l.Buffer = 1 << 20
		}),
		"udp 20M": with(udp, func(l *record.Load) { l.PacketSize, l.RateBps = 500, 20e6 }),
		"udp down, 2": with(udp, func(l *record.Load) {
			l.PacketSize = 200
			l.RateBps = 5e6
			l.Direction = record.Down
			l.Streams = 2
		}),
		"udp flat, IPv6": with(udp, func(l *record.Load) { l.PacketSize, l.IP = 1500, 6 }),
		"udp one by one": with(udp, func(l *record.Load) {
			l.PacketSize = 500
			l.GSO = record.GSOOff
		}),
		"udp, 200 flows": with(udp, func(l *record.Load) {
			l.PacketSize = 200
			l.Streams = 200
			l.RateBps = 20e6
		}),
		"udp counted": with(counted, func(l *record.Load) { l.PacketSize = 92 }),
		"udp imix": with(udp, func(l *record.Load) {
			l.Sizes = factor.IMIXSizes("4")
			l.Streams = 3
			l.RateBps = 20e6
		}),
		"udp imix, IPv6, checked": with(udp, func(l *record.Load) {
			l.Sizes = factor.IMIXSizes("6")
			l.IP = 6
			l.Verify = true
		}),
		"udp counted, IPv6, both": with(counted, func(l *record.Load) {
			l.PacketSize = 1500
			l.IP = 6
			l.Direction = record.Both
		}),
		"udp counted, one by one": with(counted, func(l *record.Load) {
			l.PacketSize = 500
			l.GSO = record.GSOOff
			l.RateBps = 20e6
		}),
		"udp counted, 200 flows, far opens": with(counted, func(l *record.Load) {
			l.PacketSize = 200
			l.Streams = 200
			l.RateBps = 20e6
			l.Opener = "far"
		}),
	}
	for name, l := range loads {
		if l.Protocol == "tcp" {
			// Leave time for retransmissions. On a busy machine, a lost packet is retransmitted after 0.2 s,
			// or after 1 s if it is the first packet of a connection (RFC 6298). Until then, nothing is sent.
			l.Duration = 1200 * time.Millisecond
			loads[name] = l
		}
	}

	return loads
}
