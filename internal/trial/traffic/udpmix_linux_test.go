package traffic_test

import (
	"math"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/steady"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/iperf3"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/stream"
)

// mixLoad is of packets of several sizes.
func mixLoad(streams int, direction, opener string, ip int, pps float64) record.Load {
	l := udpLoad(streams, direction, opener, 0, 0)
	l.IP, l.Sizes = ip, factor.IMIXSizes(strconv.Itoa(ip))
	l.RateBps = pps * 8 * (record.MeanSize(l.PacketSizes()) - float64(traffic.PacketOverhead(ip)))
	return l
}

// checkMix: all packets came, and the bytes are those of the flow's first datagrams.
func checkMix(t *steady.Trial, f record.Flow, flow int) {
	t.Helper()
	p := f.Packets
	ip := 4
	if strings.Contains(f.Local, "[") {
		ip = 6
	}

	if p == nil || p.Sent != p.Received+p.Lost || p.Size != 0 {
		t.Fatalf("stream %d %s: accounts %+v, want sent = received + lost, of no one size", f.Stream,
			f.Direction, p)
	}

	if p.Sent == 0 || p.Lost != 0 { // what a sender that was held up sent when the receiver had gone
		t.Timedf("stream %d %s: accounts %+v, want all sent received", f.Stream, f.Direction, p)
		return
	}

	want := int64(0)
	sizes := factor.IMIXSizes(strconv.Itoa(ip))
	for n := range int(p.Sent) {
		want += int64(sizes[(flow+n)%len(sizes)] - traffic.PacketOverhead(ip))
	}

	if f.SentBytes != want || f.ReceivedBytes != want {
		t.Errorf("stream %d %s: %d bytes sent and %d received, want the %d of %d datagrams",
			f.Stream, f.Direction, f.SentBytes, f.ReceivedBytes, want, p.Sent)
	}
}

func TestUDPMixEveryOpenerAndDirection(t *testing.T) {
	eachWay(t, func(t *testing.T, opener, direction string) {
		for ip, at := range map[int]netip.Addr{4: loopback4, 6: loopback6} {
			steady.Run(t, func(t *steady.Trial) {
				near, far := ends(t, at)
				load := mixLoad(2, direction, opener, ip, 5000)
				got := carried(t, stream.Native{}, near, far, load, newStopwatch(200*time.Millisecond))
				for i, f := range got.Flows {
					checkMix(t, f, i)
				}

				mode := got.Details["near.mode"] + got.Details["far.mode"]
				if !strings.Contains(mode, "send by sendmmsg") || strings.Contains(mode, "batches") {
					t.Errorf("mode %q, want datagrams sent one by one", mode)
				}
			})
		}
	})
}

// TestUDPMixManyFlows: through the listener's one port, at a rate of bits that is of the mix.
func TestUDPMixManyFlows(t *testing.T) { steady.Run(t, udpMixManyFlows) }

func udpMixManyFlows(t *steady.Trial) {
	for _, opener := range []string{"near", "far"} {
		near, far := ends(t, loopback4)
		load := mixLoad(100, record.Up, opener, 4, 10000)
		clock := newStopwatch(500 * time.Millisecond)
		clock.drain = time.Second
		got := carried(t, stream.Native{}, near, far, load, clock)
		var packets, unsent, bytes int64
		for i, f := range got.Flows {
			checkMix(t, f, i)
			packets = packets + f.Packets.Sent
			unsent = unsent + f.Packets.Unsent
			bytes = bytes + f.SentBytes
		}

		mean := float64(bytes) / float64(packets)
		if math.Abs(mean/traffic.MeanPayload(load)-1) > .01 {
			t.Errorf("%s opens: %v bytes in the mean, want %v", opener, mean, traffic.MeanPayload(load))
		}

		// What a busy machine did not send is counted as unsent.
		total := packets + unsent
		if total < 4500 || total > 6000 {
			t.Timedf("%s opens: %d packets sent or unsent, want the 5000 that the rate makes", opener, total)
		}
	}
}

func TestUDPMixIsVerified(t *testing.T) { steady.Run(t, udpMixIsVerified) }

func udpMixIsVerified(t *steady.Trial) {
	near, far := ends(t, loopback4)
	load := mixLoad(2, record.Both, "near", 4, 2000)
	load.Verify = true
	got := carried(t, stream.Native{}, near, far, load, newStopwatch(200*time.Millisecond))
	for i, f := range got.Flows {
		checkMix(t, f, i)
		if f.Corrupt != 0 || f.Verified < f.ReceivedBytes-f.Packets.Received*traffic.DatagramHeader {
			t.Errorf("stream %d %s: %d bytes verified and %d corrupt of %d", f.Stream, f.Direction,
				f.Verified, f.Corrupt, f.ReceivedBytes)
		}
	}
}

// TestUDPMixCountsRealBytes: with loss, duplicates and late packets planted, bytes are those that arrived,
// once each.
func TestUDPMixCountsRealBytes(t *testing.T) { steady.Run(t, udpMixCountsRealBytes) }

func udpMixCountsRealBytes(t *steady.Trial) {
	near, far := ends(t, loopback4)
	load := mixLoad(1, record.Up, "near", 4, 5000)
	relay := new(udpRelay).through(t, &far, &load)
	got := carried(t, stream.Native{}, near, far, load, newStopwatch(400*time.Millisecond))
	f := got.Flows[0]
	relay.mu.Lock()
	defer relay.mu.Unlock()
	p := f.Packets
	if p.Sent != relay.seen || p.Lost != relay.lost || *p.Duplicates != relay.duplicated ||
		*p.Reordered != relay.reversed || p.Sent != p.Received+p.Lost {
		relay.wrong(t, got)("accounts %+v; the relay saw %d, lost %d, doubled %d and held back %d", p,
			relay.seen, relay.lost, relay.duplicated, relay.reversed)
	}

	if f.SentBytes != relay.seenBytes || f.ReceivedBytes != relay.seenBytes-relay.lostBytes ||
		relay.lostBytes == 0 || relay.duplicated == 0 {
		relay.wrong(t, got)("%d bytes sent and %d received; the relay saw %d and lost %d", f.SentBytes,
			f.ReceivedBytes, relay.seenBytes, relay.lostBytes)
	}
}

func TestIPerf3MixesNoSizes(t *testing.T) {
	load := record.Load{
		Protocol:  "udp",
		Direction: record.Up,
		Streams:   1,
		IP:        4,
		Sizes:     factor.IMIXSizes("4"),
	}
	near, far := ends(t, loopback4)
	if a := (stream.Native{}).Check(t.Context(), near, far, load); a.State != check.Yes {
		t.Errorf("native: got %+v, want yes", a)
	}

	a := iperf3.Engine{}.Check(t.Context(), traffic.End{}, traffic.End{}, load)
	if a.State != check.No || !strings.Contains(a.Reason, "several sizes") {
		t.Errorf("iperf3: got %+v, want a no that says why", a)
	}
}
