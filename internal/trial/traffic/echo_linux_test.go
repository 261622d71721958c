package traffic_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/steady"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/latency"
)

func echoLoad(opener string, ip int) record.Load {
	return record.Load{
		Protocol: "echo",
		Streams:  1,
		IP:       ip,
		Opener:   opener,
		Interval: 2 * time.Millisecond,
		Tag:      "echo " + opener,
	}
}

func TestEchoEveryOpenerAndFamily(t *testing.T) {
	for _, opener := range []string{"near", "far"} {
		for _, at := range []netip.Addr{loopback4, loopback6} {
			t.Run(opener+" opens at "+at.String(), func(t *testing.T) {
				load := echoLoad(opener, 4)
				if at.Is6() {
					load.IP = 6
				}

				steady.Run(t, func(t *steady.Trial) {
					near, far := ends(t, at)
					clock := newStopwatch(300 * time.Millisecond)
					got := probed(t, latency.Echo{}, near, far, load, clock)
					checkLatency(t, got, clock)
				})
			})
		}
	}
}

func checkLatency(t *steady.Trial, l *record.Latency, clock *stopwatch) {
	t.Helper()
	if n := len(l.RTT); n+int(l.SkippedSlots) != 150 || len(l.SentAt) != n || len(l.Late) != n ||
		len(l.UserRTT) != n {
		t.Fatalf("%d round trips, %d skipped slots, want 150 together; columns %d %d %d",
			n, l.SkippedSlots, len(l.SentAt), len(l.Late), len(l.UserRTT))
	}

	if l.Stamps != "kernel" {
		t.Errorf("stamps are %q (%v), want kernel", l.Stamps, l.Details)
	}

	for i, rtt := range l.RTT {
		if rtt < 0 {
			t.Timedf("probe %d was lost on loopback", i)
			continue
		}

		if rtt > l.UserRTT[i] {
			t.Errorf("probe %d: network's share %d is more than the whole %d", i, rtt, l.UserRTT[i])
		}

		at := l.SentAt[i]
		if at < clock.timeline.Start || at > clock.timeline.End+int64(time.Second) ||
			l.Late[i] < 0 {
			t.Timedf("probe %d was sent at %d, %d late, outside the window", i, at, l.Late[i])
		}
	}

	rtt := slices.Sorted(slices.Values(l.RTT))
	late := slices.Sorted(slices.Values(l.Late))
	user := slices.Sorted(slices.Values(l.UserRTT))
	n := len(rtt)
	t.Logf("network p50 %v p99 %v, process p50 %v p99 %v, late p50 %v p99 %v, %v", time.Duration(rtt[n/2]),
		time.Duration(rtt[n*99/100]),
		time.Duration(user[n/2]), time.Duration(user[n*99/100]), time.Duration(late[n/2]),
		time.Duration(late[n*99/100]), l.Details)
}

func TestEchoCountsPlantedFaults(t *testing.T) {
	near, far := ends(t, loopback4)
	echoThroughRelay(t, near, far)
}

func echoThroughRelay(t *testing.T, near, far traffic.End) {
	t.Helper()
	load := echoLoad("near", 4)
	relay := new(udpRelay).through(t, &far, &load)
	clock := newStopwatch(300 * time.Millisecond)
	clock.warmup = 0
	clock.drain = time.Second // so long that an answer may take
	got := probed(t, latency.Echo{}, near, far, load, clock)
	lost := int64(0)
	for _, rtt := range got.RTT {
		if rtt == -1 {
			lost++
		}
	}

	relay.mu.Lock()
	defer relay.mu.Unlock()
	// One probe may still wait in the relay to be overtaken.
	held := lost - relay.lost
	if relay.lost == 0 || held < 0 || held > 1 ||
		got.Duplicates != relay.duplicated {
		t.Errorf("lost %d, duplicates %d; the relay lost %d and doubled %d", lost, got.Duplicates, relay.lost,
			relay.duplicated)
	}
}
