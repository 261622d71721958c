package stream

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/steady"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

func TestTCPModeFollowsTheDevice(t *testing.T) {
	const whole, whole6, joins = "tx-tcp-segmentation", "tx-tcp6-segmentation", "rx-gro"
	tests := []struct {
		name     string
		mode     tcpMode
		features map[string]bool
		to       string
		shared   bool
		want     tcpMode
	}{
		{"a device that cuts and joins", tcpMode{}, map[string]bool{whole: true, joins: true}, "198.18.0.1",
			false, tcpMode{polled: true}},
		{"the same with many streams", tcpMode{}, map[string]bool{whole: true, joins: true}, "198.18.0.1",
			true, tcpMode{}},
		{"the same with so many that they share threads", tcpMode{pool: true}, map[string]bool{whole: true,
			joins: true}, "198.18.0.1", true, tcpMode{pool: true}},
		{"as on a wire", tcpMode{}, map[string]bool{whole: false, joins: false}, "198.18.0.1", false,
			tcpMode{splice: true, polled: true}},
		{"as on a wire with many streams", tcpMode{}, map[string]bool{whole: false, joins: false},
			"198.18.0.1", true, tcpMode{}},
		{"as on a wire, IPv6 only", tcpMode{}, map[string]bool{whole: true, whole6: false, joins: true},
			"2001:2::1", false, tcpMode{splice: true, polled: true}},
		{"verified content changes", tcpMode{verify: true}, map[string]bool{whole: false, joins: false},
			"198.18.0.1", false, tcpMode{verify: true, polled: true}},
		{"a pool writes", tcpMode{pool: true}, map[string]bool{whole: false, joins: false}, "198.18.0.1",
			true,
			tcpMode{pool: true, polled: true}},
		{"unknown", tcpMode{}, nil, "198.18.0.1", false, tcpMode{}},
	}
	for _, tt := range tests {
		got := tt.mode.with(tt.features, netip.MustParseAddr(tt.to), !tt.shared)
		if got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// TestTCPModesMoveEveryByte: whichever mode is taken, what one end sent the other received, and only that.
func TestTCPModesMoveEveryByte(t *testing.T) {
	for _, mode := range []tcpMode{{}, {splice: true}, {polled: true}, {splice: true, polled: true}} {
		t.Run(mode.String(), func(t *testing.T) {
			steady.Run(t, func(t *steady.Trial) {
				fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
				if err != nil {
					t.Fatal(err)
				}

				// Content tells whether pages were given away that changed.
				q := traffic.Request{Load: record.Load{Tag: "modes"}}
				buffers := newTCPBuffers(q)
				sender := &tcpFlow{
					Socket: traffic.Socket{FD: fds[0]},
					mode:   mode,
					byteStream: byteStream{
						ByteFlow: traffic.ByteFlow{Sends: true, Table: record.NewTable("bytes")}},
				}
				sender.prepare(buffers)
				receiver := &tcpFlow{
					Socket:     traffic.Socket{FD: fds[1]},
					mode:       mode,
					byteStream: byteStream{verify: true},
				}
				receiver.prepare(buffers)
				receiver.pattern = traffic.NewPattern("modes", 0)
				now := traffic.Monotonic()
				p := &traffic.Phases{Window: record.Window{
					Begin: now,
					Start: now,
					End: now +
						int64(50*time.Millisecond),
					Stop: now + int64(time.Second),
				}}
				p.Senders = p.End
				sent := make(chan error, 1)
				go func() {
					err := sender.Run(p)
					sender.Shutdown(unix.SHUT_WR)
					sent <- err
				}()
				got := int64(0)
				b := make([]byte, 1<<20)
				for {
					n, err := unix.Read(receiver.FD, b)
					if err == unix.EINTR {
						continue
					}

					if n <= 0 || err != nil {
						break
					}

					for i := 0; i < n; {
						at := (got + int64(i)) % writeSize
						m := min(n-i, int(writeSize-at))
						bad := receiver.pattern.Mismatches(b[i:i+m], uint64(at))
						if bad > 0 {
							t.Fatalf("%d wrong bytes near %d", bad, got)
						}

						i += m
					}

					got += int64(n)
				}

				if err := <-sent; err != nil {
					t.Fatal(err)
				}

				want := sender.Count.Load()
				if got != want {
					t.Errorf("received %d bytes of %d sent", got, want)
				}

				if got == 0 {
					t.Timedf("nothing was sent")
				}

				sender.Close()
				receiver.Close()
			})
		})
	}
}

// TestReorderingIsCountedInTheWindow: what the kernel counted before it is left out.
func TestReorderingIsCountedInTheWindow(t *testing.T) {
	f := tcpFlow{}
	f.Sends = true
	f.info[0] = unix.TCPInfo{Reord_seen: 3, Dsack_dups: 7}
	f.info[1] = unix.TCPInfo{Reord_seen: 45, Dsack_dups: 9}
	got := f.Report().TCP
	if got.ReordSeen != 42 || got.DsackDups != 2 {
		t.Errorf("got %d times overtaken and %d segments twice, want 42 and 2", got.ReordSeen, got.DsackDups)
	}
}
