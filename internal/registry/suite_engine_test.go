package registry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/steady"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// engineSuite tests what every engine must do: for one load, account for what it sent, and end soon after it
// is told to.
func engineSuite(t *testing.T, l *lab.Lab, e traffic.Engine, load record.Load) {
	near, far := labtest.Ends(t, l, 0, load.IP)
	ctx := labtest.Context(t)
	labtest.Able(t, "the engine offers no such load here", e.Check(ctx, near, far, load))
	steady.Run(t, func(t *steady.Trial) {
		got, err := e.Offer(ctx, near, far, load, &labtest.Conductor{Length: load.Duration})
		labtest.MustDo(t, err, "offer")
		accounts(t, got, load)
	})
	cause := errors.New("enough")
	cancelled, cancel := context.WithCancelCause(ctx)
	var at time.Time
	c := &labtest.Conductor{
		Length: time.Minute,
		Start: func() {
			time.AfterFunc(50*time.Millisecond, func() { at = time.Now(); cancel(cause) })
		},
	}
	load.Duration = time.Minute
	_, err := e.Offer(cancelled, near, far, load, c)
	took := time.Since(at)
	if !errors.Is(err, cause) && !errors.Is(err, context.Canceled) ||
		took > 3*time.Second {
		t.Errorf("cancelled: got %v after %s, want the cause within 3 s", err, took)
	}
}

// leavesNothingAt compares what lives at the ends of a lab of namespaces before and after a test: its
// processes, and the sockets of both ends.
func leavesNothingAt(t *testing.T, l *lab.Lab) {
	t.Helper()
	labtest.Ends(t, l, 0, 4) // a node's agent is started when it is first spoken to
	before := living(t, l)
	t.Cleanup(func() {
		// A process ends a little after its session.
		expect.Soon(t, 2*time.Second, "at the lab's ends", before, func() string { return living(t, l) })
	})
}

// living lists the processes and sockets of both ends. What closes in an orderly way is the kernel's own.
func living(t *testing.T, l *lab.Lab) string {
	t.Helper()
	const inTimeWait, ofEstablished = "06", 4
	var b strings.Builder
	for _, node := range []string{l.Topology.Near, l.Topology.Far} {
		for line := range strings.Lines(labtest.Exec(t, l, node, "cat", "/proc/net/tcp", "/proc/net/tcp6",
			"/proc/net/udp", "/proc/net/udp6")) {
			f := strings.Fields(line)
			if len(f) < ofEstablished || f[0] == "sl" || f[3] == inTimeWait {
				continue
			}

			fmt.Fprintf(&b, "%s: socket %s %s state %s\n", node, f[1], f[2], f[3])
		}
	}

	// The lab's processes, which all nodes have in common; the one that asks is always there.
	names := strings.Fields(labtest.Exec(t, l, l.Topology.Near, "sh", "-c",
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

	sent := 0.0
	for _, f := range got.Flows {
		sent += 8 * float64(f.SentBytes)
	}

	if sent < load.RateBps*load.Duration.Seconds()/2 { // flows take turns, and some may have had none
		say = t.Timedf
	}

	for _, f := range got.Flows {
		name := f.Direction
		if f.ReceivedBytes <= 0 || f.SentBytes <= 0 || f.SenderNs <= 0 || f.ReceiverNs <= 0 {
			say("%s flow %d: got %d bytes sent in %d ns and %d received in %d ns, want all above zero",
				name, f.Stream, f.SentBytes, f.SenderNs, f.ReceivedBytes, f.ReceiverNs)
		}

		p := f.Packets
		if load.Protocol == "udp" {
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

		if load.Verify && f.Verified <= 0 {
			say("%s flow %d: no byte was verified", name, f.Stream)
		}

		if f.Corrupt != 0 {
			t.Errorf("%s flow %d: %d bytes arrived damaged", name, f.Stream, f.Corrupt)
		}
	}

	for _, side := range []string{"near", "far"} {
		if u, ok := got.Ends[side]; !ok || u.Node == "" || u.UserNs+u.SystemNs <= 0 {
			t.Errorf("cost of the %s end: got %+v, want its node and CPU time", side, u)
		}
	}
}

// proberSuite tests what a latency probe must do on an idle path: account for every slot, and report its own
// timer's error.
func proberSuite(t *testing.T, l *lab.Lab, p traffic.Prober) {
	for ip := 4; ip <= 6; ip += 2 {
		steady.Run(t, func(t *steady.Trial) { proberOver(t, l, p, ip) })
	}
}

func proberOver(t *steady.Trial, l *lab.Lab, p traffic.Prober, ip int) {
	near, far := labtest.Ends(t, l, 0, ip)
	const length, interval = 300 * time.Millisecond, 2 * time.Millisecond
	load := record.Load{
		Protocol:   "echo",
		Direction:  record.Up,
		Streams:    1,
		IP:         ip,
		PacketSize: 100,
		Opener:     "near",
		Port:       20900,
		Duration:   length,
		Interval:   interval,
		Tag:        "suite",
	}
	got, err := p.Probe(labtest.Context(t), near, far, load, &labtest.Conductor{Length: length})
	labtest.MustDo(t, err, "IPv%d", ip)
	lost := 0
	for _, rtt := range got.RTT {
		if rtt < 0 {
			lost++
		} else if rtt == 0 || rtt > int64(time.Second) {
			t.Timedf("IPv%d: got a round trip of %d ns, want one between 0 and 1 s", ip, rtt)
		}
	}

	slots := int64(length / interval)
	n := int64(len(got.RTT)) + got.SkippedSlots
	if n < slots-1 || n > slots+1 {
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

// TestFakeEngineConforms holds the fake to the real one's suite.
func TestFakeEngineConforms(t *testing.T) {
	f := &labtest.Lab{Topology: lab.Topologies()[0], Engine: labtest.Engine{Loss: 0.1}}
	l, err := f.Up()
	must(t, err)
	t.Cleanup(func() { l.Close(context.Background()) })
	for name, load := range labtest.Loads() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engineSuite(t, l, f.Engine, load)
		})
	}
}

// TestARejectedResultDoesNotPassTheEngineSuite: an end that read its counts late by more than half of the
// window has measured nothing, however well its accounts add up.
func TestARejectedResultDoesNotPassTheEngineSuite(t *testing.T) {
	load := record.Load{Protocol: "tcp", Direction: record.Up, Streams: 1, Duration: time.Second}
	for _, late := range []time.Duration{0, 600 * time.Millisecond} {
		r := &steady.Trial{TB: t}
		accounts(r, &record.Traffic{
			Load: load,
			Ends: map[string]record.EndUsage{
				"near": {Node: "near", UserNs: 1}, "far": {Node: "far", UserNs: 1, EdgeLateNs: int64(late)}},
			Flows: []record.Flow{{SentBytes: 1, ReceivedBytes: 1, SenderNs: 1e9, ReceiverNs: 1e9}},
		}, load)
		got := r.Found()
		if (len(got) > 0) != (late > 0) {
			t.Errorf("counts read %v late: got %q, want a fault only where they are late", late, got)
		}
	}
}
