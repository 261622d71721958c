package traffic_test

import (
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/steady"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/stream"
)

func udpLoad(streams int, direction, opener string, size int, pps float64) record.Load {
	l := record.Load{
		Protocol:   "udp",
		Direction:  direction,
		Streams:    streams,
		IP:         4,
		Opener:     opener,
		PacketSize: size,
		Interval:   20 * time.Millisecond,
		Tag:        "tag of " + direction + opener,
	}
	l.RateBps = pps * 8 * float64(size-traffic.PacketOverhead(4))
	return l
}

func TestUDPEveryOpenerAndDirection(t *testing.T) {
	eachWay(t, func(t *testing.T, opener, direction string) {
		near, far := ends(t, loopback4)
		load := udpLoad(2, direction, opener, 64, 20000)
		got := offered(t, near, far, load, newStopwatch(150*time.Millisecond))
		for _, f := range got.Flows {
			checkAccounts(t, f)
			receiver := map[string]string{record.Up: "far", record.Down: "near"}[f.Direction]
			for _, note := range []string{"socket_drops", "stray_packets", "ancient_packets"} {
				if _, ok := got.Details[receiver+"."+note]; !ok {
					t.Errorf("details %v: want %s of the %s end, which receives", got.Details, note,
						receiver)
				}
			}
		}

		checkRate(t, got, 20000)
	})
}

// checkRate: what a busy machine did not send of a rate is counted as unsent.
func checkRate(t *testing.T, got *record.Traffic, pps float64) {
	t.Helper()
	total := int64(0)
	want := 0.0
	for _, f := range got.Flows {
		total += f.Packets.Sent + f.Packets.Unsent
		want += pps / float64(len(got.Flows)) * float64(f.SenderNs) / 1e9
	}

	if float64(total) < want*0.95 || float64(total) > want*1.2 {
		t.Errorf("sent and unsent packets: %d in all, want about %v", total, want)
	}
}

func checkAccounts(t *testing.T, f record.Flow) {
	t.Helper()
	p := f.Packets
	if p == nil || p.Sent == 0 || p.Sent != p.Received+p.Lost {
		t.Fatalf("stream %d %s: accounts %+v, want sent = received + lost above 0", f.Stream, f.Direction, p)
	}

	want := p.Received * int64(p.Size-traffic.PacketOverhead(4))
	if f.ReceivedBytes != want {
		t.Errorf("received %d bytes, want %d", f.ReceivedBytes, want)
	}

	if f.ReceiverNs < f.SenderNs || f.SenderNs <= 0 {
		t.Errorf("windows: sender %d, receiver %d ns", f.SenderNs, f.ReceiverNs)
	}
}

func TestUDPFlatOut(t *testing.T) {
	steady.Run(t, func(t *steady.Trial) {
		near, far := ends(t, loopback6)
		load := udpLoad(2, record.Up, "near", 200, 0)
		load.IP = 6
		got := offered(t, near, far, load, newStopwatch(150*time.Millisecond))
		for _, f := range got.Flows {
			p := f.Packets
			if p.Sent != p.Received+p.Lost || p.Unsent != 0 {
				t.Errorf("accounts %+v", p)
			}

			if p.Received < 1000 {
				t.Timedf("accounts %+v", p)
			}
		}

		t.Logf("%+v %+v %v", *got.Flows[0].Packets, *got.Flows[1].Packets, got.Details)
	})
}

func TestUDPPlantedFaultsAreCounted(t *testing.T) { steady.Run(t, udpPlantedFaultsAreCounted) }

func udpPlantedFaultsAreCounted(t *steady.Trial) {
	near, far := ends(t, loopback4)
	countThroughRelay(t, near, far)
}

func countThroughRelay(t *steady.Trial, near, far traffic.End) {
	t.Helper()
	load := udpLoad(1, record.Up, "near", 300, 5000)
	relay := new(udpRelay).through(t, &far, &load)
	got := carried(t, stream.Native{}, near, far, load, newStopwatch(400*time.Millisecond))
	p := *got.Flows[0].Packets
	relay.mu.Lock()
	defer relay.mu.Unlock()
	want := record.Packets{
		Sent:       relay.seen,
		Received:   relay.seen - relay.lost,
		Lost:       relay.lost,
		Unsent:     p.Unsent,
		Duplicates: &relay.duplicated,
		Reordered:  &relay.reversed,
		Size:       300,
		Gaps:       []record.Gap{{Length: 1, Gaps: relay.lost, Packets: relay.lost}},
		Delay:      p.Delay,
	}
	n := packetsIn(p.Delay)
	if n != p.Received+*p.Duplicates {
		t.Errorf("delays of %d packets, want those of all %d that came", n, p.Received+*p.Duplicates)
	}

	diff := cmp.Diff(want, p)
	if diff != "" || relay.lost == 0 || relay.duplicated == 0 ||
		relay.reversed == 0 {
		relay.wrong(t, got)("accounts differ from what the relay did (-want +got):\n%s", diff)
	}
}

// packetsIn adds up a distribution.
func packetsIn(d *record.DelayVariation) int64 {
	n := int64(0)
	for _, c := range d.Counts {
		n += c.Packets
	}
	return n
}

func TestUDPStraysDoNotCount(t *testing.T) {
	near, far := ends(t, loopback4)
	load := udpLoad(1, record.Up, "near", 100, 2000)
	load.Port = freePort(t)
	stray, err := net.DialUDP("udp", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: load.Port})
	if err != nil {
		t.Fatal(err)
	}

	done := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		b := make([]byte, 72)
		traffic.Datagram{Tag: 1, Phase: traffic.PhaseWindow, Seq: 1 << 20}.Put(b)
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
				stray.Write(b)
			}
		}
	}()
	got, err := stream.Native{}.Offer(t.Context(), near, far, load, newStopwatch(200*time.Millisecond))
	close(done)
	<-stopped
	stray.Close()
	if err != nil {
		t.Fatal(err)
	}

	p := got.Flows[0].Packets
	if p.Lost != 0 || p.Sent != p.Received {
		t.Errorf("accounts %+v, want no loss", p)
	}
}

func TestTooBigPacketIsAnError(t *testing.T) {
	a := (stream.Native{}).Check(t.Context(), traffic.End{}, traffic.End{},
		udpLoad(1, record.Up, "near", 43,
			0))
	if a.State.String() != "no" {
		t.Errorf("43-byte packets: %+v, want no", a)
	}
}
