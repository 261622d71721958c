package traffic_test

import (
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/latency"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/stream"
)

// slowRelay passes datagrams from 127.0.0.2 to 127.0.0.1 and back, each a delay later.
func slowRelay(t *testing.T, port int, delay time.Duration) {
	t.Helper()
	front, err := net.ListenUDP("udp", &net.UDPAddr{IP: relayed.AsSlice(), Port: port})
	if err != nil {
		t.Fatal(err)
	}
	front.SetReadBuffer(4 << 20)
	var running sync.WaitGroup
	var mu sync.Mutex
	open := []*net.UDPConn{front}
	pass := func(from *net.UDPConn, to func(netip.AddrPort, []byte)) {
		for b := make([]byte, 1<<11); ; {
			n, source, err := from.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			data := append([]byte(nil), b[:n]...)
			time.AfterFunc(delay, func() { to(source, data) })
		}
	}
	ways := map[netip.AddrPort]*net.UDPConn{}
	forth := func(source netip.AddrPort, data []byte) {
		mu.Lock()
		defer mu.Unlock()
		way := ways[source]
		if way == nil {
			if way, err = net.DialUDP("udp", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1),
				Port: port}); err != nil {
				return
			}
			ways[source], open = way, append(open, way)
			running.Go(func() {
				pass(way, func(_ netip.AddrPort, b []byte) {
					front.WriteToUDPAddrPort(b,
						source)
				})
			})
		}
		way.Write(data)
	}
	running.Go(func() { pass(front, forth) })
	t.Cleanup(func() {
		time.Sleep(delay) // what is under way must not find a closed relay
		mu.Lock()
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		running.Wait()
	})
}

// What is under way at the window's end is waited for: a path that only delays has lost nothing, and its
// rate is the sender's.
func TestDelayIsNoLoss(t *testing.T) {
	const delay = 80 * time.Millisecond
	near, far := ends(t, loopback4)
	far.Target = relayed
	load := udpLoad(1, record.Up, "near", 300, 2000)
	load.Port = freePort(t)
	slowRelay(t, load.Port, delay)
	clock := newStopwatch(200 * time.Millisecond)
	clock.drain = 2 * time.Second
	got, err := stream.Native{}.Offer(t.Context(), near, far, load, clock)
	if err != nil {
		t.Fatal(err)
	}
	if p := got.Flows[0].Packets; p.Lost != 0 || p.Received == 0 {
		t.Errorf("udp: %+v, want nothing lost", p)
	}
	if late := time.Duration(traffic.Monotonic() - clock.timeline.End); late > time.Second {
		t.Errorf("udp: it took %v after the window, want it to end with the end of the stream", late)
	}
}

func TestDelayedProbesAreAwaited(t *testing.T) {
	const delay = 80 * time.Millisecond
	near, far := ends(t, loopback4)
	far.Target = relayed
	load := record.Load{Protocol: "echo", Streams: 1, IP: 4, Opener: "near", PacketSize: 100, Tag: "late",
		Interval: 5 * time.Millisecond, Port: freePort(t)}
	slowRelay(t, load.Port, delay)
	clock := newStopwatch(300 * time.Millisecond)
	clock.drain = 2 * time.Second
	got, err := latency.Echo{}.Probe(t.Context(), near, far, load, clock)
	if err != nil {
		t.Fatal(err)
	}
	for i, rtt := range got.RTT {
		if rtt < 0 || time.Duration(rtt) < 2*delay {
			t.Errorf("probe %d: round trip %v, want more than %v", i, time.Duration(rtt), 2*delay)
		}
	}
	if late := time.Duration(traffic.Monotonic() - clock.timeline.End); late > time.Second {
		t.Errorf("it took %v after the window, want it to end with the last answer", late)
	}
}
