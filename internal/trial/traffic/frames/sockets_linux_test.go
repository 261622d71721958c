package frames

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/probe/bpf"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// socketLoad is both ends of a load on the loopback device, whose frames go by a packetSocket and are counted
// by a socket.
type socketLoad struct {
	sender    *txSender
	reader    *frameReader
	sent, got []*xdpFlow
}

// newSocketLoad opens one in IPv6, which the loopback device lets in from outside the stack.
func newSocketLoad(t *testing.T, flows, size int, pps float64, sizes ...int) *socketLoad {
	t.Helper()
	listener, err := net.ListenUDP("udp6", &net.UDPAddr{IP: net.IPv6loopback})
	if err != nil {
		t.Fatal(err)
	}

	at := listener.LocalAddr().(*net.UDPAddr).AddrPort()
	fd, err := traffic.TakeOver(listener)
	listener.Close()
	if err != nil {
		t.Fatal(err)
	}

	socket := &traffic.Socket{FD: fd}
	t.Cleanup(socket.Close)
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}

	p := &xdpPort{
		hop: kernel.Hop{Device: "lo"},
		load: bpf.Load{
			IP:         6,
			Tag:        0x01020304,
			PacketSize: size,
			Sizes:      sizes,
			PPS:        pps,
			Source:     make([]byte, 6),
			Next:       make([]byte, 6),
		},
	}
	q := &xdpPort{hop: p.hop, sink: choice{mode: record.SinkSockets}, load: p.load}
	load := record.Load{IP: 6, PacketSize: size, Sizes: sizes}
	mean := traffic.MeanPayload(load)
	l := &socketLoad{}
	for i := range flows {
		p.load.Send = append(p.load.Send, bpf.Tuple{
			From: netip.AddrPortFrom(netip.IPv6Loopback(),
				uint16(30000+i)),
			To: at,
		})
		f := &xdpFlow{
			port:  p,
			sends: true,
			index: i,
			sizes: traffic.SizesOf(load, i),
			mean:  mean,
			perNs: pps / float64(flows) / 1e9,
		}
		g := &xdpFlow{port: q, index: i, sizes: f.sizes, mean: mean, socket: socket}
		l.sent, l.got = append(l.sent, f), append(l.got, g)
	}

	p.tx, err = openPacket(lo.Index, bpf.NewWriter(p.load))
	if errors.Is(err, unix.EPERM) {
		t.Skip("skip: needs root to send frames by a socket")
	}

	if err != nil {
		t.Fatal(err)
	}

	q.counting = l.got
	l.sender, l.reader = newTxSender(p, l.sent), newFrameReader(l.got, p.load.Tag)
	return l
}

func timeline(window time.Duration) *traffic.Phases {
	ph := &traffic.Phases{}
	ph.Begin = traffic.Monotonic() + int64(10*time.Millisecond)
	ph.Start = ph.Begin + int64(20*time.Millisecond)
	ph.End = ph.Start + int64(window)
	ph.Senders = ph.End + int64(10*time.Millisecond)
	ph.Stop = ph.Senders + int64(100*time.Millisecond)
	return ph
}

// run gives the receiver more time than the sender, which may be late on a machine that does other things.
func (l *socketLoad) run(ph *traffic.Phases) (send, receive error) {
	var work sync.WaitGroup
	later := &traffic.Phases{Window: ph.Window, Senders: ph.Senders + 2*int64(txSettle)}
	later.Stop = later.Senders
	if ph.End-ph.Start > int64(time.Second) { // to be stopped
		later = ph
	}

	work.Go(func() { traffic.OwnThread(); send = l.sender.Run(ph) })
	work.Go(func() { traffic.OwnThread(); receive = l.reader.Run(later) })
	work.Wait()
	return send, receive
}

// TestSocketsCarryEveryFrame: what a socket says it sent, the socket at the other end has received, or had
// no room for; paced, all of it, in order.
func TestSocketsCarryEveryFrame(t *testing.T) {
	for _, tt := range []struct {
		flows, size int
		pps         float64
		sizes       []int
	}{{1, 66, 5000, nil}, {7, 66, 20_000, nil}, {3, 1500, 2000, nil}, {1, 66, 0, nil}, {5, 1500, 0, nil},
		{3, 1500, 2000, factor.IMIXSizes("6")}} {
		t.Run(fmt.Sprintf("%d flows of %d bytes, %.0f pps", tt.flows, tt.size, tt.pps),
			func(t *testing.T) {
				l := newSocketLoad(t, tt.flows, tt.size, tt.pps, tt.sizes...)
				defer l.sender.tx.Close()
				send, receive := l.run(timeline(80 * time.Millisecond))
				if send != nil || receive != nil {
					t.Fatalf("run: %v, %v", send, receive)
				}

				drops := l.got[0].port.socketDrops()
				lost := int64(0)
				for i, f := range l.sent {
					s := f.Report()
					r := l.got[i].Report()
					lost += s.Sent - r.Received
					if r.Lost+s.Sent-r.Highest != s.Sent-r.Received || s.Sent == 0 || *r.Duplicates != 0 {
						t.Errorf("flow %d: sent %d, received %d, lost %d before %d, twice %d", i, s.Sent,
							r.Received, r.Lost, r.Highest, *r.Duplicates)
					}

					if lost == 0 && s.Bytes != r.Bytes || r.Bytes == 0 {
						t.Errorf("flow %d: sent %d bytes of payload, received %d", i, s.Bytes, r.Bytes)
					}

					all := f.packets() - l.got[i].packets()
					if tt.pps == 0 {
						continue
					}

					pps := tt.pps / float64(tt.flows)
					want := int64(pps * float64(s.Ns) / 1e9)
					debt := int64(pps * traffic.MaxDebt.Seconds())
					if lost != 0 || all != 0 || *r.Reordered != 0 || s.Sent+s.Unsent < want-1 ||
						s.Sent > want+debt+traffic.MaxBurst {
						t.Errorf("flow %d: sent %d, unsent %d, received %d, in all phases %d more sent, "+
							"want %d sent and received",
							i, s.Sent, s.Unsent, r.Received, all, want)
					}
				}

				if lost > drops {
					t.Errorf("lost %d, and the socket dropped %d in all phases", lost, drops)
				}

				n := l.got[0].wrong
				if n != 0 {
					t.Errorf("got %d stray datagrams, want none", n)
				}
			})
	}
}

// TestASocketCountsNoStrays: what has another tag, length or flow is no frame of the load.
func TestASocketCountsNoStrays(t *testing.T) {
	l := newSocketLoad(t, 1, 66, 1000)
	defer l.sender.tx.Close()
	at := l.sender.load.Send[0].To
	good := make([]byte, bpf.Header)
	binary.BigEndian.PutUint32(good, 0x01020304)
	good[16] = bpf.Window << 6
	strange := append([]byte(nil), good...)
	strange[0]++
	other := append([]byte(nil), good...)
	other[17] = 1
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, b := range [][]byte{good, strange, other, good[:17], append(good[:18:18], 0),
		make([]byte, traffic.DatagramHeader), nil} {
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
	}

	ph := timeline(time.Millisecond)
	if err := l.reader.Run(ph); err != nil {
		t.Fatal(err)
	}

	f := l.got[0]
	r := f.Report()
	if f.packets() != 1 || r.Received != 1 || r.Lost != 0 || f.wrong != 5 {
		t.Errorf("counted %d, received %d, lost %d, strays %d; want 1, 1, 0, 5", f.packets(), r.Received,
			r.Lost, f.wrong)
	}
}

// TestASocketLeavesNothing: stopped in the middle, it ends at once, and its socket does not remain.
func TestASocketLeavesNothing(t *testing.T) {
	before := sockets()
	l := newSocketLoad(t, 2, 66, 10_000)
	ph := timeline(time.Minute)
	time.AfterFunc(60*time.Millisecond, func() { ph.Abandoned.Store(true) })
	began := time.Now()
	l.run(ph)
	d := time.Since(began)
	if d > time.Second {
		t.Errorf("ended after %v, want soon", d)
	}

	l.sender.tx.Close()
	n := sockets()
	if n != before+1 { // the receiver's
		t.Errorf("%d sockets are open, want the receiver's and the %d of before", n, before)
	}
}

// sockets counts those that this process has open.
func sockets() (n int) {
	files, _ := filepath.Glob("/proc/self/fd/*")
	for _, f := range files {
		to, _ := os.Readlink(f)
		if strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// TestASocketTellsThatItsDeviceIsGone: there is no device of that index.
func TestASocketTellsThatItsDeviceIsGone(t *testing.T) {
	l := newSocketLoad(t, 1, 66, 0) // or skip
	l.sender.tx.Close()
	tx, err := openPacket(1<<30, l.sender.writer)
	if err == nil {
		tx.Close()
	}

	if err == nil || !strings.Contains(err.Error(), "device 1073741824") {
		t.Errorf("got %v, want an error that names the device", err)
	}
}

// TestWindowAsTheSenderSawIt: of a window of which the sender had no time at an edge nothing is known.
func TestWindowAsTheSenderSawIt(t *testing.T) {
	for _, tt := range []struct {
		name  string
		saw   sendPhases
		lasts int64
	}{
		{"each edge", sendPhases{began: [...]int64{10, 20, 50, 60}, ended: 61}, 30},
		{"not the cool-down's beginning", sendPhases{began: [...]int64{10, 20, 0, 60}, ended: 61}, 40},
		{"behind with frames to the end", sendPhases{began: [...]int64{10, 20, 0, 0}, ended: 70}, 50},
		{"a burst", sendPhases{began: [...]int64{0, 20, 50, 0}, ended: 61}, 30},
		{"not the window's beginning", sendPhases{began: [...]int64{10, 0, 50, 60}, ended: 61}, 0},
		{"neither edge", sendPhases{began: [...]int64{10, 0, 0, 60}, ended: 61}, 0},
		{"no end", sendPhases{began: [...]int64{10, 20, 0, 0}}, 0},
		{"nothing", sendPhases{}, 0},
	} {
		got := tt.saw.window()
		if got != tt.lasts {
			t.Errorf("%s: got %d, want %d", tt.name, got, tt.lasts)
		}
	}
}
