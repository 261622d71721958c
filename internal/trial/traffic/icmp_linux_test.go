package traffic_test

import (
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/steady"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/latency"
)

// needPing skips where an ordinary user gets no socket for ICMP.
func needPing(t *testing.T, at netip.Addr) {
	t.Helper()
	domain := unix.AF_INET
	protocol := unix.IPPROTO_ICMP
	if at.Is6() {
		domain = unix.AF_INET6
		protocol = unix.IPPROTO_ICMPV6
	}

	fd, err := unix.Socket(domain, unix.SOCK_DGRAM, protocol)
	if err != nil && os.Geteuid() != 0 {
		t.Skip("skip: ordinary users may not ping here: " + err.Error())
	}

	if err == nil {
		unix.Close(fd)
	}
}

func TestICMPEveryFamily(t *testing.T) {
	for _, at := range []netip.Addr{loopback4, loopback6} {
		t.Run(at.String(), func(t *testing.T) {
			load := echoLoad("near", 4)
			if at.Is6() {
				load.IP = 6
			}

			needPing(t, at)
			steady.Run(t, func(t *steady.Trial) {
				near, far := ends(t, at)
				clock := newStopwatch(300 * time.Millisecond)
				got := probed(t, latency.ICMP{}, near, far, load, clock)
				checkLatency(t, got, clock)
				if got.Probe != "icmp" || got.EchoNs[0] != 0 || len(got.Ends) != 1 || got.Ends["near"].UserNs+
					got.Ends["near"].SystemNs <= 0 {
					t.Errorf("got probe %q, residence %d, cost of the ends %+v; want icmp, none, and that "+
						"of near", got.Probe, got.EchoNs[0], got.Ends)
				}
			})
		})
	}
}

// A far end that answers no ping is an error, not a row of lost probes.
func TestICMPNeedsAnAnswer(t *testing.T) {
	needPing(t, loopback4)
	near, far := ends(t, loopback4)
	far.Target = netip.MustParseAddr("192.0.2.1") // TEST-NET-1, unreachable from loopback's address
	_, err := latency.ICMP{}.Probe(t.Context(), near, far, echoLoad("near", 4),
		newStopwatch(100*time.Millisecond))
	wantError(t, err, "192.0.2.1")
}

func TestEchoExponential(t *testing.T) {
	near, far := ends(t, loopback4)
	load := echoLoad("near", 4)
	load.Spacing = record.Exponential
	clock := newStopwatch(400 * time.Millisecond)
	got := probed(t, latency.Echo{}, near, far, load, clock)
	due := latency.NewSchedule(clock.timeline, int64(load.Interval), load.Spacing,
		uint64(traffic.TagHash(traffic.TagProbe, load.Tag)))
	n := len(got.RTT) + int(got.SkippedSlots)
	if n != due.N-due.First || got.Spacing != record.Exponential {
		t.Errorf("%d probes and skipped slots, spacing %q, want %d, exponential", n, got.Spacing,
			due.N-due.First)
	}

	for i, at := range got.SentAt {
		planned := at - got.Late[i]
		if !slices.Contains(due.Times, planned) {
			t.Errorf("probe %d was due at %d, which is not on the schedule", i, planned)
		}
	}

	for side, u := range got.Ends {
		if u.Node == "" || u.UserNs+u.SystemNs <= 0 || len(u.ThreadsNs) != 1 || len(u.ThreadCPUs) != 1 ||
			u.ThreadCPUs[0] < 0 {
			t.Errorf("cost of the %s end: %+v, want its node, CPU time, thread and core", side, u)
		}
	}

	if len(got.Ends) != 2 {
		t.Errorf("cost of %d ends, want 2", len(got.Ends))
	}
}
