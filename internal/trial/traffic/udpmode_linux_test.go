package traffic_test

import (
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/steady"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/stream"
)

// TestUDPCountModeClaimsNoOrder: the counts are exact, and what a count cannot see is absent.
func TestUDPCountModeClaimsNoOrder(t *testing.T) {
	for _, gso := range []string{"", record.GSOOff} {
		for _, at := range []int{4, 6} {
			steady.Run(t, func(t *steady.Trial) { countModeClaimsNoOrder(t, gso, at) })
		}
	}
}

func countModeClaimsNoOrder(t *steady.Trial, gso string, at int) {
	addr := loopback4
	if at == 6 {
		addr = loopback6
	}

	near, far := ends(t, addr)
	load := udpLoad(2, record.Both, "near", 200, 0)
	load.IP = at
	load.UDPMode = record.UDPCount
	load.GSO = gso
	got := offered(t, near, far, load, newStopwatch(150*time.Millisecond))
	for _, f := range got.Flows {
		p := f.Packets
		if p.Sent != p.Received+p.Lost {
			t.Errorf("GSO %q, IPv%d: accounts %+v", gso, at, p)
		}

		if p.Received < 100 {
			t.Timedf("GSO %q, IPv%d: accounts %+v", gso, at, p)
		}

		if p.Duplicates != nil || p.Reordered != nil || p.Gaps != nil || p.Delay != nil {
			t.Errorf("GSO %q: count mode claims %+v", gso, p)
		}
	}

	mode := got.Details["near.mode"]
	for _, word := range []string{"count mode", "UDP_GRO"} {
		if !strings.Contains(mode, word) {
			t.Errorf("mode %q lacks %q", mode, word)
		}
	}

	byOne := strings.Contains(mode, "sendmmsg")
	if byOne != (gso == record.GSOOff) {
		t.Errorf("GSO %q: mode %q", gso, mode)
	}

	// The loopback device takes batches whole; then they are no packets.
	kinds := map[string]bool{}
	for _, c := range got.Caveats {
		kinds[c.Kind] = true
	}

	if !kinds["count-mode"] || kinds["super-packets"] != (got.Details["near.gso_uncut"] == "true") {
		t.Errorf("caveats %v with uncut batches %s", got.Caveats, got.Details["near.gso_uncut"])
	}
}

// TestUDPVerifiedIsExact: content is looked at datagram by datagram.
func TestUDPVerifiedIsExact(t *testing.T) {
	near, far := ends(t, loopback4)
	load := udpLoad(1, record.Up, "near", 200, 2000)
	load.UDPMode = record.UDPCount
	load.Verify = true
	got := offered(t, near, far, load, newStopwatch(100*time.Millisecond))
	f := got.Flows[0]
	if f.Packets.Reordered == nil || f.Verified == 0 || f.Corrupt != 0 ||
		got.Details["udp_mode"] != record.UDPExact {
		t.Errorf("flow %+v in mode %q", f, got.Details["udp_mode"])
	}
}

// TestUDPCountModeAgreesWithExact: at a rate without loss both find every packet, across the edges of the
// window too.
func TestUDPCountModeAgreesWithExact(t *testing.T) {
	for _, mode := range []string{record.UDPExact, record.UDPCount} {
		steady.Run(t, func(t *steady.Trial) {
			near, far := ends(t, loopback4)
			load := udpLoad(2, record.Up, "near", 100, 30000)
			load.UDPMode = mode
			got := carried(t, stream.Native{}, near, far, load, newStopwatch(200*time.Millisecond))
			for _, f := range got.Flows {
				p := f.Packets
				if p.Lost != 0 {
					t.Errorf("%s: %+v, want nothing lost", mode, p)
				}

				if p.Received == 0 {
					t.Timedf("%s: %+v, want packets", mode, p)
				}
			}

			if got.RateError == nil {
				t.Fatalf("%s: no rate error", mode)
			}

			e := *got.RateError
			if e > 0.05 || e < -0.5 {
				t.Timedf("%s: rate error %v, want no more than asked for", mode, e)
			}
		})
	}
}

// TestUDPCountModeFindsEveryLoss: what a path loses is found by count, to the packet.
func TestUDPCountModeFindsEveryLoss(t *testing.T) { steady.Run(t, udpCountModeFindsEveryLoss) }

func udpCountModeFindsEveryLoss(t *steady.Trial) {
	near, far := ends(t, loopback4)
	load := udpLoad(2, record.Up, "near", 300, 5000)
	load.UDPMode = record.UDPCount
	relay := (&udpRelay{loses: true}).through(t, &far, &load)
	got := carried(t, stream.Native{}, near, far, load, newStopwatch(400*time.Millisecond))
	var sent, lost int64
	for _, f := range got.Flows {
		p := f.Packets
		if p.Sent != p.Received+p.Lost {
			t.Errorf("stream %d: %+v", f.Stream, p)
		}

		sent = sent + p.Sent
		lost = lost + p.Lost
	}

	relay.mu.Lock()
	defer relay.mu.Unlock()
	if sent != relay.seen || lost != relay.lost || lost == 0 {
		relay.wrong(t, got)("sent %d, lost %d; the relay saw %d and lost %d", sent, lost, relay.seen,
			relay.lost)
	}
}

// TestUDPManyFlows: more flows than threads, in both modes, both ways, from either side.
func TestUDPManyFlows(t *testing.T) {
	for _, mode := range []string{record.UDPExact, record.UDPCount} {
		for _, opener := range []string{"near", "far"} {
			for _, rate := range []float64{0, 20000} {
				near, far := ends(t, loopback4)
				load := udpLoad(100, record.Both, opener, 200, rate)
				load.UDPMode = mode
				clock := newStopwatch(200 * time.Millisecond)
				clock.drain = time.Second
				got := offered(t, near, far, load, clock)
				var all record.Packets
				silent := 0
				late := int64(0)
				for _, f := range got.Flows {
					p := f.Packets
					if p.Sent != p.Received+p.Lost {
						t.Errorf("%s, %s opens: stream %d %s: %+v", mode, opener, f.Stream, f.Direction, p)
					}

					if p.Received == 0 {
						silent++
					}

					if p.Reordered != nil {
						late += *p.Reordered
					}

					all.Sent, all.Lost = all.Sent+p.Sent, all.Lost+p.Lost
				}

				// Flat out, a busy machine need not get round to all in so short a time.
				if rate > 0 && (silent > 0 || all.Lost > 0) || late > 0 || silent == len(got.Flows) {
					t.Errorf("%s, %s opens, %v pps: %d of %d flows silent, %d of %d packets lost, %d "+
						"reordered; %v",
						mode, opener, rate, silent, len(got.Flows), all.Lost, all.Sent, late, got.Details)
				}

				for _, side := range []string{"near", "far"} {
					n := len(got.Ends[side].ThreadsNs)
					if n > 2*len(traffic.AllowedCPUs()) {
						t.Errorf("%s end: %d threads for 200 flows", side, n)
					}
				}
			}
		}
	}
}

// TestUDPDelaysAreAboveTheLowest: each packet that came has its delay.
func TestUDPDelaysAreAboveTheLowest(t *testing.T) {
	near, far := ends(t, loopback4)
	load := udpLoad(1, record.Up, "near", 100, 5000)
	got := offered(t, near, far, load, newStopwatch(200*time.Millisecond))
	p := got.Flows[0].Packets
	d := p.Delay
	if d == nil || d.Stamps != "kernel" || packetsIn(d) != p.Received {
		t.Fatalf("delays %+v of %d packets", d, p.Received)
	}

	for i, c := range d.Counts {
		if c.Packets <= 0 || c.AboveNs < 0 || i > 0 && c.AboveNs < d.Counts[i-1].AboveNs {
			t.Errorf("bucket %d is %+v after %+v", i, c, d.Counts[max(i-1, 0)])
		}
	}

	if d.Counts[0].AboveNs != 0 {
		t.Errorf("lowest bucket begins %d ns above the lowest delay", d.Counts[0].AboveNs)
	}
}
