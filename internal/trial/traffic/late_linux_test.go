package traffic_test

import (
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/latency"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/stream"
)

// What is under way at the window's end is waited for: a path that only delays has lost nothing, and its
// rate is the sender's.
func TestDelayIsNoLoss(t *testing.T) {
	const delay = 80 * time.Millisecond
	near, far := ends(t, loopback4)
	load := udpLoad(1, record.Up, "near", 300, 2000)
	(&udpRelay{delay: delay}).through(t, &far, &load)
	clock := newStopwatch(200 * time.Millisecond)
	clock.drain = 2 * time.Second
	got := carried(t, stream.Native{}, near, far, load, clock)
	p := got.Flows[0].Packets
	if p.Lost != 0 || p.Received == 0 {
		t.Errorf("udp: %+v, want nothing lost", p)
	}

	late := time.Duration(traffic.Monotonic() - clock.timeline.End)
	if late > time.Second {
		t.Errorf("udp: it took %v after the window, want it to end with the end of the stream", late)
	}
}

func TestDelayedProbesAreAwaited(t *testing.T) {
	const delay = 80 * time.Millisecond
	near, far := ends(t, loopback4)
	load := record.Load{
		Protocol:   "echo",
		Streams:    1,
		IP:         4,
		Opener:     "near",
		PacketSize: 100,
		Tag:        "late",
		Interval:   5 * time.Millisecond,
	}
	(&udpRelay{delay: delay}).through(t, &far, &load)
	clock := newStopwatch(300 * time.Millisecond)
	clock.drain = 2 * time.Second
	got := probed(t, latency.Echo{}, near, far, load, clock)
	for i, rtt := range got.RTT {
		if rtt < 0 || time.Duration(rtt) < 2*delay {
			t.Errorf("probe %d: round trip %v, want more than %v", i, time.Duration(rtt), 2*delay)
		}
	}

	late := time.Duration(traffic.Monotonic() - clock.timeline.End)
	if late > time.Second {
		t.Errorf("it took %v after the window, want it to end with the last answer", late)
	}
}
