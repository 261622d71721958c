package traffic_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/steady"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/stream"
)

// TestTCPManyStreamsShareThreads: more streams than threads, verified, both ways at once.
func TestTCPManyStreamsShareThreads(t *testing.T) { steady.Run(t, manyStreamsShareThreads) }

func manyStreamsShareThreads(t *steady.Trial) {
	near, far := ends(t, loopback4)
	load := tcpLoad(traffic.OwnThreads, record.Both, "near")
	load.Verify = true
	got := carried(t, stream.Native{}, near, far, load, newStopwatch(300*time.Millisecond))
	if len(got.Flows) != 2*traffic.OwnThreads {
		t.Fatalf("got %d flows, want %d", len(got.Flows), 2*traffic.OwnThreads)
	}

	moved := int64(0)
	served := 0
	for _, f := range got.Flows {
		if f.Corrupt != 0 || f.Verified < f.ReceivedBytes {
			t.Errorf("stream %d %s: verified %d, corrupt %d of %d", f.Stream, f.Direction, f.Verified,
				f.Corrupt, f.ReceivedBytes)
		}

		moved += f.ReceivedBytes
		if f.Received.V[0][len(f.Received.T)-1] > 0 {
			served++
		}
	}

	if moved == 0 || served < traffic.OwnThreads {
		t.Timedf("%d bytes, %d of %d streams served", moved, served, len(got.Flows))
	}

	for _, side := range []string{"near", "far"} {
		u := got.Ends[side]
		if len(u.ThreadsNs) > 2*len(traffic.AllowedCPUs()) || u.MemoryBytes <= 0 {
			t.Errorf("%s end: %d threads for %d streams, %d bytes of memory", side, len(u.ThreadsNs),
				len(got.Flows), u.MemoryBytes)
		}

		mode := got.Details[side+".mode"]
		if !strings.Contains(mode, "shared by streams") {
			t.Errorf("%s mode %q does not say that threads are shared", side, mode)
		}
	}
}

// TestTCPIsPaced: the kernel holds each stream to its share, which a load flat out exceeds by far.
func TestTCPIsPaced(t *testing.T) { steady.Run(t, tcpIsPaced) }

func tcpIsPaced(t *steady.Trial) {
	near, far := ends(t, loopback4)
	load := tcpLoad(2, record.Up, "near")
	load.RateBps = 80e6
	clock := newStopwatch(500 * time.Millisecond)
	clock.warmup = 200 * time.Millisecond
	got := carried(t, stream.Native{}, near, far, load, clock)
	sum := 0.0
	for _, f := range got.Flows {
		sum += 8e9 * float64(f.ReceivedBytes) / float64(f.ReceiverNs)
	}

	if sum > 1.05*load.RateBps || sum < load.RateBps/2 {
		t.Timedf("received %.1f Mbit/s, want 80 at most and not far less", sum/1e6)
	}
}

func TestTCPStreamsTakeControlsInTurn(t *testing.T) {
	near, far := ends(t, loopback4)
	load := tcpLoad(3, record.Both, "near")
	load.Congestion = "reno+" + congestion() // an ordinary user may have no other
	got := carried(t, stream.Native{}, near, far, load, newStopwatch(50*time.Millisecond))
	for _, f := range got.Flows {
		want := []string{congestion(), "reno"}[f.Stream%2]
		if f.TCP.Congestion != want {
			t.Errorf("stream %d %s has %s, want %s", f.Stream, f.Direction, f.TCP.Congestion, want)
		}
	}

	if want := strings.Join(slices.Compact([]string{"reno", congestion()}),
		"+"); got.Details["near.congestion"] != want {
		t.Errorf("details say %q, want %q", got.Details["near.congestion"], want)
	}
}

// TestTCPSettingsReachTheSocket: segment size and buffers are as asked for.
func TestTCPSettingsReachTheSocket(t *testing.T) {
	near, far := ends(t, loopback4)
	load := tcpLoad(1, record.Up, "near")
	load.MSS = 1000
	load.Buffer = 100_000
	load.DSCP = 46
	got := carried(t, stream.Native{}, near, far, load, newStopwatch(50*time.Millisecond))
	// Time stamps take 12 bytes of each segment.
	mss := got.Flows[0].TCP.MSS
	if mss != 1000 && mss != 988 {
		t.Errorf("segments of %d bytes, want 1000 with options", mss)
	}

	for _, key := range []string{"near.sndbuf_bytes", "far.rcvbuf_bytes"} {
		if got.Details[key] != "100000" {
			t.Errorf("%s = %s, want 100000", key, got.Details[key])
		}
	}
}

func TestDSCPIsSet(t *testing.T) {
	for _, ip := range []int{4, 6} {
		domain := unix.AF_INET
		level := unix.IPPROTO_IP
		option := unix.IP_TOS
		if ip == 6 {
			domain = unix.AF_INET6
			level = unix.IPPROTO_IPV6
			option = unix.IPV6_TCLASS
		}

		fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}

		if err := traffic.MarkDSCP(fd, record.Load{IP: ip, DSCP: 46}); err != nil {
			t.Errorf("IPv%d: %v", ip, err)
		}

		if got, err := unix.GetsockoptInt(fd, level, option); got != 46<<2 || err != nil {
			t.Errorf("IPv%d: traffic class %#x (%v), want %#x", ip, got, err, 46<<2)
		}

		unix.Close(fd)
	}
}
