package traffic

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/steady"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func TestTCPWayFollowsTheDevice(t *testing.T) {
	const whole, whole6, joins = "tx-tcp-segmentation", "tx-tcp6-segmentation", "rx-gro"
	tests := []struct {
		name     string
		way      tcpWay
		features map[string]bool
		to       string
		crowded  bool
		want     tcpWay
	}{
		{"a device that cuts and joins", tcpWay{}, map[string]bool{whole: true, joins: true}, "198.18.0.1",
			false, tcpWay{polled: true}},
		{"the same with many streams", tcpWay{}, map[string]bool{whole: true, joins: true}, "198.18.0.1",
			true, tcpWay{}},
		{"the same with so many that they share threads", tcpWay{pool: true}, map[string]bool{whole: true,
			joins: true}, "198.18.0.1", true, tcpWay{pool: true}},
		{"as on a wire", tcpWay{}, map[string]bool{whole: false, joins: false}, "198.18.0.1", false,
			tcpWay{gift: true, polled: true}},
		{"as on a wire with many streams", tcpWay{}, map[string]bool{whole: false, joins: false},
			"198.18.0.1", true, tcpWay{}},
		{"as on a wire, IPv6 only", tcpWay{}, map[string]bool{whole: true, whole6: false, joins: true},
			"2001:2::1", false, tcpWay{gift: true, polled: true}},
		{"verified content changes", tcpWay{verify: true}, map[string]bool{whole: false, joins: false},
			"198.18.0.1", false, tcpWay{verify: true, polled: true}},
		{"a pool writes", tcpWay{pool: true}, map[string]bool{whole: false, joins: false}, "198.18.0.1", true,
			tcpWay{pool: true, polled: true}},
		{"unknown", tcpWay{}, nil, "198.18.0.1", false, tcpWay{}},
	}
	for _, tt := range tests {
		if got := tt.way.with(tt.features, netip.MustParseAddr(tt.to), !tt.crowded); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// TestTCPWaysMoveEveryByte: whichever way is taken, what one end sent the other received, and only that.
func TestTCPWaysMoveEveryByte(t *testing.T) {
	for _, way := range []tcpWay{{}, {gift: true}, {polled: true}, {gift: true, polled: true}} {
		t.Run(way.String(), func(t *testing.T) {
			steady.Run(t, func(t *steady.Trial) {
				fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
				if err != nil {
					t.Fatal(err)
				}
				// Content tells whether pages were given away that changed.
				q := request{Load: record.Load{Tag: "ways"}}
				buffers := newTCPBuffers(q)
				sender := &tcpFlow{socket: socket{fd: fds[0]}, sends: true, way: way}
				sender.prepare(buffers)
				receiver := &tcpFlow{socket: socket{fd: fds[1]}, verify: true, way: way}
				receiver.prepare(buffers)
				receiver.pattern = newPattern("ways", 0)
				now := monotonic()
				p := &phases{Window: record.Window{Begin: now, Start: now, End: now +
					int64(50*time.Millisecond), Stop: now + int64(time.Second)}}
				p.senders = p.End
				sent := make(chan error, 1)
				go func() {
					err := sender.run(p)
					sender.shutdown(unix.SHUT_WR)
					sent <- err
				}()
				got := int64(0)
				b := make([]byte, 1<<20)
				for {
					n, err := unix.Read(receiver.fd, b)
					if err == unix.EINTR {
						continue
					}
					if n <= 0 || err != nil {
						break
					}
					for i := 0; i < n; {
						at := (got + int64(i)) % writeSize
						m := min(n-i, int(writeSize-at))
						if bad := receiver.pattern.mismatches(b[i:i+m], uint64(at)); bad > 0 {
							t.Fatalf("%d wrong bytes near %d", bad, got)
						}
						i += m
					}
					got += int64(n)
				}
				if err := <-sent; err != nil {
					t.Fatal(err)
				}
				if want := sender.count.Load(); got != want {
					t.Errorf("received %d bytes of %d sent", got, want)
				}
				if got == 0 {
					t.Timedf("nothing was sent")
				}
				sender.close()
				receiver.close()
			})
		})
	}
}

func TestDealGivesEachOnce(t *testing.T) {
	for n := range 9 {
		flows := make([]int, n)
		for i := range flows {
			flows[i] = 10 + i
		}
		var all []int
		hands := deal(flows, 4)
		for _, h := range hands {
			if len(h) == 0 || len(h) > (n+3)/4 {
				t.Errorf("%d flows: a hand of %d", n, len(h))
			}
			all = append(all, h...)
		}
		slices.Sort(all)
		if !slices.Equal(all, flows) || len(hands) > 4 {
			t.Errorf("%d flows: got %v", n, hands)
		}
	}
}

// TestTCPManyStreamsShareThreads: more streams than threads, verified, both ways at once.
func TestTCPManyStreamsShareThreads(t *testing.T) { steady.Run(t, manyStreamsShareThreads) }

func manyStreamsShareThreads(t *steady.Trial) {
	near, far := ends(t, loopback4)
	load := tcpLoad(ownThreads, record.Both, "near")
	load.Verify = true
	got, err := Native{}.Offer(t.Context(), near, far, load, newStopwatch(300*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Flows) != 2*ownThreads {
		t.Fatalf("got %d flows, want %d", len(got.Flows), 2*ownThreads)
	}
	moved, served := int64(0), 0
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
	if moved == 0 || served < ownThreads {
		t.Timedf("%d bytes, %d of %d streams served", moved, served, len(got.Flows))
	}
	for _, side := range []string{"near", "far"} {
		if u := got.Ends[side]; len(u.ThreadsNs) > 2*len(allowedCPUs()) || u.MemoryBytes <= 0 {
			t.Errorf("%s end: %d threads for %d streams, %d bytes of memory", side, len(u.ThreadsNs),
				len(got.Flows), u.MemoryBytes)
		}
		if mode := got.Details[side+".mode"]; !strings.Contains(mode, "shared by streams") {
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
	got, err := Native{}.Offer(t.Context(), near, far, load, clock)
	if err != nil {
		t.Fatal(err)
	}
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
	got, err := Native{}.Offer(t.Context(), near, far, load, newStopwatch(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range got.Flows {
		if want := []string{congestion(), "reno"}[f.Stream%2]; f.TCP.Congestion != want {
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
	load.MSS, load.Buffer, load.DSCP = 1000, 100_000, 46
	got, err := Native{}.Offer(t.Context(), near, far, load, newStopwatch(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	// Time stamps take 12 bytes of each segment.
	if mss := got.Flows[0].TCP.MSS; mss != 1000 && mss != 988 {
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
		domain, level, option := unix.AF_INET, unix.IPPROTO_IP, unix.IP_TOS
		if ip == 6 {
			domain, level, option = unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_TCLASS
		}
		fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := markDSCP(fd, record.Load{IP: ip, DSCP: 46}); err != nil {
			t.Errorf("IPv%d: %v", ip, err)
		}
		if got, err := unix.GetsockoptInt(fd, level, option); got != 46<<2 || err != nil {
			t.Errorf("IPv%d: traffic class %#x (%v), want %#x", ip, got, err, 46<<2)
		}
		unix.Close(fd)
	}
}
