package traffic_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/steady"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/latency"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/stream"
)

// portableHandlers returns what an agent elsewhere than on Linux carries.
func portableHandlers() map[string]host.Handler {
	return map[string]host.Handler{"traffic/native": stream.ServePortable,
		"traffic/echo": latency.ServePortable}
}

// mixedEnds are one of the portable engine, or both, and one of Linux'.
func mixedEnds(t testing.TB, at netip.Addr, portable string) (near, far traffic.End) {
	t.Helper()
	near, far = ends(t, at)
	if portable != "far" {
		near.Agent = serving(t, portableHandlers())
	}

	if portable != "near" {
		far.Agent = serving(t, portableHandlers())
	}

	return near, far
}

// mixes are all ways in which a portable end can have a part.
func mixes(t *testing.T, run func(t *testing.T, portable, opener, direction string)) {
	for _, portable := range []string{"near", "far", "both"} {
		t.Run("portable "+portable, func(t *testing.T) {
			eachWay(t, func(t *testing.T, opener, direction string) { run(t, portable, opener, direction) })
		})
	}
}

// TestPortableTCP: every byte arrives as it was sent, what both ends counted agrees, and what the portable
// end cannot know is absent.
func TestPortableTCP(t *testing.T) {
	mixes(t, func(t *testing.T, portable, opener, direction string) {
		t.Parallel() // no rate is checked
		for _, streams := range []int{1, 4} {
			near, far := mixedEnds(t, loopback4, portable)
			load := tcpLoad(streams, direction, opener)
			load.Verify = true
			got := offered(t, near, far, load, newStopwatch(100*time.Millisecond))
			moved := int64(0)
			for _, f := range got.Flows {
				checkPortableFlow(t, f, portable)
				moved += f.ReceivedBytes
			}

			if moved == 0 {
				t.Errorf("%d streams: nothing arrived", streams)
			}
		}
	})
}

func checkPortableFlow(t *testing.T, f record.Flow, portable string) {
	t.Helper()
	last := len(f.Received.T) - 1
	total := f.Received.V[0][last]
	if f.Corrupt != 0 || float64(f.Verified) < total || f.ReceivedBytes > f.Verified {
		t.Errorf("stream %d %s: verified %d, corrupt %d of %v", f.Stream, f.Direction, f.Verified, f.Corrupt,
			total)
	}

	// What was sent and has not been received is in the buffers of the sockets.
	sent := sentBy(f.Sent, f.Received.T[last])
	if sent > total+64<<20 {
		t.Errorf("stream %d %s: sent %v, received %v: does not fit together", f.Stream, f.Direction, sent,
			total)
	}

	sender := map[string]string{record.Up: "near", record.Down: "far"}[f.Direction]
	told := f.TCP != nil
	if told != (sender != portable && portable != "both") {
		t.Errorf("stream %d %s: TCP of the sender: %v, portable end: %s", f.Stream, f.Direction, f.TCP,
			portable)
	}
}

func TestPortableTCPOverIPv6(t *testing.T) {
	near, far := mixedEnds(t, loopback6, "both")
	load := tcpLoad(1, record.Up, "near")
	load.IP = 6
	got := offered(t, near, far, load, newStopwatch(50*time.Millisecond))
	if got.Flows[0].ReceivedBytes <= 0 {
		t.Error("nothing arrived")
	}
}

// TestPortableTCPIsPaced: the program holds each stream to its share, which a load flat out exceeds by far.
func TestPortableTCPIsPaced(t *testing.T) {
	near, far := mixedEnds(t, loopback4, "near")
	load := tcpLoad(2, record.Up, "near")
	load.RateBps = 80e6
	clock := newStopwatch(500 * time.Millisecond)
	got := offered(t, near, far, load, clock)
	sum := 0.0
	for _, f := range got.Flows {
		sum += 8e9 * float64(f.ReceivedBytes) / float64(f.ReceiverNs)
	}

	if sum > 1.1*load.RateBps || sum < load.RateBps/2 {
		t.Errorf("received %.1f Mbit/s, want 80 at most and not far less", sum/1e6)
	}
}

// TestPortableRefusesWhatItHasNot: the answer names the system and what is missing.
func TestPortableRefusesWhatItHasNot(t *testing.T) {
	near, far := mixedEnds(t, loopback4, "far")
	for _, tt := range []struct {
		change func(*record.Load)
		want   string
	}{
		{func(l *record.Load) { l.MSS = 1000 }, "segment size"},
		{func(l *record.Load) { l.Buffer = 100_000 }, "socket buffers"},
		{func(l *record.Load) { l.DSCP = 46 }, "DSCP"},
		{func(l *record.Load) { l.Streams = 65 }, "at most 64 flows"},
		{func(l *record.Load) { l.Congestion = "nobody" }, "nobody"},
		{func(l *record.Load) { l.Far.ReadRateBps = 1e6 }, "limits of an application"},
	} {
		load := tcpLoad(1, record.Up, "near")
		tt.change(&load)
		a := stream.Native{}.Check(t.Context(), near, far, load)
		if a.State == 0 {
			t.Errorf("%s: got a yes, want a no", tt.want)
		}

		if wantError(t, errors.New(a.Reason), tt.want); tt.want != "nobody" { // which no end has
			wantError(t, errors.New(a.Reason), "server: its system is Linux: the portable engine has")
		}

		_, err := stream.Native{}.Offer(t.Context(), near, far, load, newStopwatch(50*time.Millisecond))
		wantError(t, err, tt.want)
	}
}

// TestPortableHearsOnlyItsLoad: a connection that shows another load's preamble, or none, is dropped and does
// not hold up the load; one that is cancelled ends at once.
func TestPortableHearsOnlyItsLoad(t *testing.T) {
	load := tcpLoad(1, record.Up, "near")
	load.Port = freePort(t)
	near, far := mixedEnds(t, loopback4, "both")
	late := portableHandlers()
	serve := late["traffic/native"]
	late["traffic/native"] = func(ctx context.Context, s host.Session) error { // others connect first
		for _, say := range [][]byte{traffic.Preamble("another load", 0),
			[]byte("GET / HTTP/1.1\r\n\r\n    ")} {
			if err := intrude(load.Port, say); err != nil {
				t.Error(err)
			}
		}
		return serve(ctx, s)
	}
	near.Agent = serving(t, late)
	got, err := stream.Native{}.Offer(t.Context(), near, far, load, newStopwatch(100*time.Millisecond))
	if err != nil || got.Flows[0].ReceivedBytes <= 0 {
		t.Fatalf("got %v, want a load in spite of others", err)
	}
}

// intrude sends something to a listener, which must hang up without an answer.
func intrude(port int, sent []byte) error {
	c, err := net.Dial("tcp", netip.AddrPortFrom(loopback4, uint16(port)).String())
	if err != nil {
		return err
	}
	defer c.Close()

	c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write(sent); err != nil {
		return err
	}

	answer, err := io.ReadAll(c)
	if len(answer) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("the listener answered %q, %v; want it to hang up", answer, err)
	}

	return nil
}

// TestPortableEndsWhenCancelled: TestMain sees to it that nothing stays.
func TestPortableEndsWhenCancelled(t *testing.T) {
	for _, protocol := range []string{"tcp", "udp"} {
		near, far := mixedEnds(t, loopback4, "both")
		load := tcpLoad(2, record.Both, "near")
		load.Protocol = protocol
		load.PacketSize = 1500
		if protocol == "udp" {
			load.Congestion = ""
		}

		wantPromptEnd(t, 5*time.Second, func(ctx context.Context) error {
			_, err := stream.Native{}.Offer(ctx, near, far, load, newStopwatch(time.Minute))
			return err
		})
	}
}

// TestPortableUDP: of every datagram it is known whether it arrived, whoever receives.
func TestPortableUDP(t *testing.T) {
	mixes(t, func(t *testing.T, portable, opener, direction string) {
		near, far := mixedEnds(t, loopback4, portable)
		load := udpLoad(2, direction, opener, 200, 4000)
		load.Verify = true
		got := offered(t, near, far, load, newStopwatch(100*time.Millisecond))
		for _, f := range got.Flows {
			checkAccounts(t, f)
			if f.Corrupt != 0 || f.Verified == 0 {
				t.Errorf("stream %d %s: verified %d, corrupt %d", f.Stream, f.Direction, f.Verified,
					f.Corrupt)
			}
		}

		checkRate(t, got, 4000)
		// What a portable receiver's buffer had no room for it does not know, and so it says nothing.
		receiver := map[string]string{record.Up: "far", record.Down: "near"}[direction]
		_, told := got.Details[receiver+".socket_drops"]
		if receiver != "" && told != (receiver != portable && portable != "both") {
			t.Errorf("drops of the %s end's socket: told: %v, portable end: %s", receiver, told, portable)
		}
	})
}

// TestPortableUDPCountsWhatIsLost: a relay drops some datagrams and sends others twice or out of order, which
// the portable receiver tells as Linux' does.
func TestPortableUDPCountsWhatIsLost(t *testing.T) {
	steady.Run(t, func(t *steady.Trial) {
		near, far := mixedEnds(t, loopback4, "far")
		countThroughRelay(t, near, far)
	})
}

// TestPortableEcho: every probe is answered, and without stamps of both kernels a round trip is what the
// prober's process saw.
func TestPortableEcho(t *testing.T) {
	for _, portable := range []string{"near", "far", "both"} {
		for _, opener := range []string{"near", "far"} {
			for _, at := range []netip.Addr{loopback4, loopback6} {
				t.Run(fmt.Sprintf("portable %s, %s opens at %s", portable, opener, at), func(t *testing.T) {
					load := echoLoad(opener, 4)
					if at.Is6() {
						load.IP = 6
					}

					steady.Run(t, func(t *steady.Trial) {
						near, far := mixedEnds(t, at, portable)
						got := probed(t, latency.Echo{}, near, far, load, newStopwatch(100*time.Millisecond))
						n := len(got.RTT) + int(got.SkippedSlots)
						if n != 50 || got.Stamps != "user" ||
							len(got.Caveats) == 0 {
							t.Errorf("%d probes with %s stamps and %v, want 50, user's, and a caveat", n,
								got.Stamps, got.Caveats)
						}

						for i, rtt := range got.RTT {
							if rtt < 0 || rtt != got.UserRTT[i] {
								t.Timedf("probe %d: %d, by the process %d; want an answer", i, rtt,
									got.UserRTT[i])
							}
						}
					})
				})
			}
		}
	}
}

func TestPortableEchoCountsPlantedFaults(t *testing.T) {
	for _, portable := range []string{"near", "far"} {
		near, far := mixedEnds(t, loopback4, portable)
		echoThroughRelay(t, near, far)
	}
}

func TestPortableEchoEndsWhenCancelled(t *testing.T) {
	near, far := mixedEnds(t, loopback4, "both")
	wantPromptEnd(t, 5*time.Second, func(ctx context.Context) error {
		_, err := latency.Echo{}.Probe(ctx, near, far, echoLoad("near", 4), newStopwatch(time.Minute))
		return err
	})
}
