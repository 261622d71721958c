package labtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/steady"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Ends are the two ends of a slot's path on a lab.
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
			end.Next = &traffic.Neighbor{Node: port.Node, Agent: nodeOf(t, l, port.Node).Agent,
				Device: port.Port}
		}
	}
	return near, far
}

// Conductor keeps one engine in time: a warm-up of a fifth of its window.
type Conductor struct {
	Length time.Duration
	Drain  time.Duration // Drain is how long what was begun in the window may still take, at least 20 ms.
	Start  func()        // Start, where it is set, is called when the timeline is fixed.

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

// Loads are what every engine is tried with. Rates are modest: the suite judges the accounts, not the speed.
func Loads() map[string]record.Load {
	base := record.Load{Protocol: "tcp", Direction: record.Up, Streams: 1, IP: 4, Congestion: "cubic",
		Opener: "near", Port: 20000, Duration: 250 * time.Millisecond, Warmup: 50 * time.Millisecond,
		Interval: 50 * time.Millisecond, Tag: "suite"}
	udp, counted := base, base
	udp.Protocol, counted.Protocol, counted.UDPMode = "udp", "udp", record.UDPCount
	with := func(l record.Load, change func(l *record.Load)) record.Load {
		change(&l)
		return l
	}
	loads := map[string]record.Load{
		"tcp up":          base,
		"tcp down, 4":     with(base, func(l *record.Load) { l.Direction, l.Streams = record.Down, 4 }),
		"tcp both, IPv6":  with(base, func(l *record.Load) { l.Direction, l.IP = record.Both, 6 }),
		"tcp far opens":   with(base, func(l *record.Load) { l.Opener = "far" }),
		"tcp, 40 streams": with(base, func(l *record.Load) { l.Streams, l.RateBps = 40, 200e6 }),
		"tcp, every byte": with(base, func(l *record.Load) { l.Verify = true }),
		"tcp paced, marked": with(base, func(l *record.Load) {
			l.RateBps, l.DSCP, l.MSS, l.Buffer = 50e6, 46, 1000, 1<<20
		}),
		"udp 20M": with(udp, func(l *record.Load) { l.PacketSize, l.RateBps = 500, 20e6 }),
		"udp down, 2": with(udp, func(l *record.Load) {
			l.PacketSize, l.RateBps, l.Direction, l.Streams = 200, 5e6, record.Down, 2
		}),
		"udp flat, IPv6": with(udp, func(l *record.Load) { l.PacketSize, l.IP = 1500, 6 }),
		"udp one by one": with(udp, func(l *record.Load) { l.PacketSize, l.GSO = 500, record.GSOOff }),
		"udp, 200 flows": with(udp, func(l *record.Load) {
			l.PacketSize, l.Streams, l.RateBps = 200, 200, 20e6
		}),
		"udp counted": with(counted, func(l *record.Load) { l.PacketSize = 92 }),
		"udp imix": with(udp, func(l *record.Load) {
			l.Sizes, l.Streams, l.RateBps = factor.IMIXSizes("4"), 3, 20e6
		}),
		"udp imix, IPv6, checked": with(udp, func(l *record.Load) {
			l.Sizes, l.IP, l.Verify = factor.IMIXSizes("6"), 6, true
		}),
		"udp counted, IPv6, both": with(counted, func(l *record.Load) {
			l.PacketSize, l.IP, l.Direction = 1500, 6, record.Both
		}),
		"udp counted, one by one": with(counted, func(l *record.Load) {
			l.PacketSize, l.GSO, l.RateBps = 500, record.GSOOff, 20e6
		}),
		"udp counted, 200 flows, far opens": with(counted, func(l *record.Load) {
			l.PacketSize, l.Streams, l.RateBps, l.Opener = 200, 200, 20e6, "far"
		}),
	}
	for name, l := range loads {
		if l.Protocol == "tcp" {
			// A packet that a busy machine loses is sent again after 0.2 s, a connection's first after a
			// second (RFC 6298): silence until then.
			l.Duration = 1200 * time.Millisecond
			loads[name] = l
		}
	}
	return loads
}

// EngineSuite is what every engine must do: for one load, account for what it sent, and end soon after it
// is told to.
func EngineSuite(t *testing.T, l *lab.Lab, e traffic.Engine, load record.Load) {
	near, far := Ends(t, l, 0, load.IP)
	ctx := Context(t)
	able(t, "the engine offers no such load here", e.Check(ctx, near, far, load))
	steady.Run(t, func(t *steady.Trial) {
		got, err := e.Offer(ctx, near, far, load, &Conductor{Length: load.Duration})
		mustDo(t, err, "offer")
		accounts(t, got, load)
	})
	cause := errors.New("enough")
	cancelled, cancel := context.WithCancelCause(ctx)
	var at time.Time
	c := &Conductor{Length: time.Minute, Start: func() {
		time.AfterFunc(50*time.Millisecond, func() { at = time.Now(); cancel(cause) })
	}}
	load.Duration = time.Minute
	_, err := e.Offer(cancelled, near, far, load, c)
	if took := time.Since(at); !errors.Is(err, cause) && !errors.Is(err, context.Canceled) ||
		took > 3*time.Second {
		t.Errorf("cancelled: got %v after %s, want the cause within 3 s", err, took)
	}
}

// LeavesNothingAt compares what lives at the ends of a lab of namespaces before and after a test: its
// processes, and the sockets of both ends.
func LeavesNothingAt(t *testing.T, l *lab.Lab) {
	t.Helper()
	Ends(t, l, 0, 4) // a node's agent is started when it is first spoken to
	before := living(t, l)
	t.Cleanup(func() {
		after := ""
		if !eventually(2*time.Second, func() bool { // a process ends a little after its session
			after = living(t, l)
			return after == before
		}) {
			t.Errorf("the engine left something at the lab's ends (-before +after):\n%s",
				cmp.Diff(before, after))
		}
	})
}

// living lists the processes and sockets of both ends. What closes in an orderly way is the kernel's own.
func living(t *testing.T, l *lab.Lab) string {
	t.Helper()
	const inTimeWait, ofEstablished = "06", 4
	var b strings.Builder
	for _, node := range []string{l.Topology.Near, l.Topology.Far} {
		for line := range strings.Lines(Exec(t, l, node, "cat", "/proc/net/tcp", "/proc/net/tcp6",
			"/proc/net/udp", "/proc/net/udp6")) {
			f := strings.Fields(line)
			if len(f) < ofEstablished || f[0] == "sl" || f[3] == inTimeWait {
				continue
			}
			fmt.Fprintf(&b, "%s: socket %s %s state %s\n", node, f[1], f[2], f[3])
		}
	}
	// The lab's processes, which all nodes have in common; the one that asks is always there.
	names := strings.Fields(Exec(t, l, l.Topology.Near, "sh", "-c",
		"cat /proc/[0-9]*/comm 2>/dev/null || true"))
	slices.Sort(names)
	fmt.Fprintf(&b, "processes: %s\n", strings.Join(names, " "))
	return b.String()
}

// accounts: every flow of the load is there, and its numbers add up.
func accounts(t *steady.Trial, got *record.Traffic, load record.Load) {
	t.Helper()
	want := load.Streams
	if load.Direction == record.Both {
		want *= 2
	}
	if len(got.Flows) != want {
		t.Errorf("flows: got %d, want %d", len(got.Flows), want)
	}
	say := t.Errorf
	if err := traffic.Measured(got); err != nil { // a trial would fail, and be repeated
		t.Stalled(load.Duration / 2)
		t.Timedf("%v", err)
		say = t.Timedf
	}
	for _, f := range got.Flows {
		name := f.Direction
		if f.ReceivedBytes <= 0 || f.SentBytes <= 0 || f.SenderNs <= 0 || f.ReceiverNs <= 0 {
			say("%s flow %d: got %d bytes sent in %d ns and %d received in %d ns, want all above zero",
				name, f.Stream, f.SentBytes, f.SenderNs, f.ReceivedBytes, f.ReceiverNs)
		}
		if p := f.Packets; load.Protocol == "udp" {
			switch {
			case p == nil:
				t.Errorf("%s flow %d: got no packet counts, want them", name, f.Stream)
			case p.Sent <= 0:
				say("%s flow %d: no packet was sent", name, f.Stream)
			case p.Sent != p.Received+p.Lost:
				t.Errorf("%s flow %d: sent %d, received %d, lost %d; want sent = received + lost", name,
					f.Stream, p.Sent, p.Received, p.Lost)
			case load.UDPMode == record.UDPCount && (p.Duplicates != nil || p.Reordered != nil ||
				p.Gaps != nil || p.Delay != nil):
				t.Errorf("%s flow %d: packets were counted by length, and yet there is %+v", name,
					f.Stream, p)
			case p.Size != load.PacketSize:
				t.Errorf("%s flow %d: got packets of %d bytes, want %d", name, f.Stream, p.Size,
					load.PacketSize)
			}
		}
		if load.Verify && (f.Verified <= 0 || f.Corrupt != 0) {
			t.Errorf("%s flow %d: got %d bytes verified and %d corrupt, want all right", name, f.Stream,
				f.Verified, f.Corrupt)
		}
	}
	for _, side := range []string{"near", "far"} {
		if u, ok := got.Ends[side]; !ok || u.Node == "" || u.UserNs+u.SystemNs <= 0 {
			t.Errorf("cost of the %s end: got %+v, want its node and CPU time", side, u)
		}
	}
}

// ProberSuite is what a latency probe must do on an idle path: account for every slot, and report its own
// timer's error.
func ProberSuite(t *testing.T, l *lab.Lab, p traffic.Prober) {
	for ip := 4; ip <= 6; ip += 2 {
		steady.Run(t, func(t *steady.Trial) { proberOver(t, l, p, ip) })
	}
}

func proberOver(t *steady.Trial, l *lab.Lab, p traffic.Prober, ip int) {
	near, far := Ends(t, l, 0, ip)
	const length, interval = 300 * time.Millisecond, 2 * time.Millisecond
	load := record.Load{Protocol: "echo", Direction: record.Up, Streams: 1, IP: ip, PacketSize: 100,
		Opener: "near", Port: 20900, Duration: length, Interval: interval, Tag: "suite"}
	got, err := p.Probe(Context(t), near, far, load, &Conductor{Length: length})
	mustDo(t, err, "IPv%d", ip)
	lost := 0
	for _, rtt := range got.RTT {
		if rtt < 0 {
			lost++
		} else if rtt == 0 || rtt > int64(time.Second) {
			t.Timedf("IPv%d: got a round trip of %d ns, want one between 0 and 1 s", ip, rtt)
		}
	}
	slots := int64(length / interval)
	if n := int64(len(got.RTT)) + got.SkippedSlots; n < slots-1 || n > slots+1 {
		t.Errorf("IPv%d: got %d probes and %d slots skipped, want %d in all", ip, len(got.RTT),
			got.SkippedSlots, slots)
	}
	if lost > len(got.RTT)/10 {
		t.Timedf("IPv%d: got %d of %d probes lost, want few", ip, lost, len(got.RTT))
	}
	if len(got.Late) != len(got.RTT) || len(got.SentAt) != len(got.RTT) {
		t.Errorf("IPv%d: got %d timer errors and %d send times for %d probes, want one each", ip,
			len(got.Late), len(got.SentAt), len(got.RTT))
	}
}
