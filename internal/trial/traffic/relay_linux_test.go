package traffic_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/steady"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// relayed holds where the relays listen; the far end is reached there.
var relayed = netip.MustParseAddr("127.0.0.2")

// freePort is a port that was free on loopback a moment ago, for UDP and TCP. It lies below those that the
// kernel gives to whoever connects (ip_local_port_range), so that nobody takes it by chance meanwhile.
func freePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 10000 + rand.IntN(20000)
		udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		if err != nil {
			continue
		}

		udp.Close()
		tcp, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		if err == nil {
			tcp.Close()
			return port
		}
	}

	t.Fatal("find a free port on loopback: none in 100 tries")
	return 0
}

// udpRelay passes datagrams from 127.0.0.2 to 127.0.0.1 and back: each a delay later, or else with harm to
// those of the measured window, and to probes, on their way there.
type udpRelay struct {
	delay time.Duration
	loses bool // and harms in no other way

	front *net.UDPConn
	back  *net.UDPAddr
	wait  sync.WaitGroup

	mu                               sync.Mutex
	conns                            []*net.UDPConn
	seen, lost, duplicated, reversed int64
	seenBytes, lostBytes             int64
}

// through has a load pass the relay on its way to the far end.
func (r *udpRelay) through(t testing.TB, far *traffic.End, load *record.Load) *udpRelay {
	t.Helper()
	far.Target, load.Port = relayed, freePort(t)
	front, err := net.ListenUDP("udp", &net.UDPAddr{IP: relayed.AsSlice(), Port: load.Port})
	if err != nil {
		t.Fatal(err)
	}

	front.SetReadBuffer(4 << 20)
	r.front, r.back = front, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: load.Port}
	r.wait.Go(r.serve)
	t.Cleanup(func() {
		time.Sleep(r.delay) // what is under way must not find a closed relay
		front.Close()
		r.mu.Lock()
		for _, c := range r.conns {
			c.Close()
		}

		r.mu.Unlock()
		r.wait.Wait()
	})
	return r
}

func (r *udpRelay) serve() {
	ways := map[netip.AddrPort]*net.UDPConn{}
	b := make([]byte, 1<<16)
	var held []byte
	for {
		n, from, err := r.front.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}

		way := ways[from]
		if way == nil {
			if way, err = net.DialUDP("udp", nil, r.back); err != nil {
				return
			}

			ways[from] = way
			r.mu.Lock()
			r.conns = append(r.conns, way)
			r.mu.Unlock()
			r.wait.Go(func() { r.backwards(way, from) })
		}

		if r.delay == 0 {
			held = r.harm(way, b[:n], held)
			continue
		}

		late := bytes.Clone(b[:n])
		time.AfterFunc(r.delay, func() { way.Write(late) })
	}
}

// harm loses each 10th datagram of the window, doubles each 15th and lets each 21st be overtaken by the
// next.
func (r *udpRelay) harm(way *net.UDPConn, b, held []byte) []byte {
	d, _ := traffic.ReadDatagram(b)
	if d.Phase != traffic.PhaseWindow && d.Phase != traffic.PhaseProbe {
		if held != nil {
			way.Write(held)
		}

		way.Write(b)
		return nil
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen++
	r.seenBytes += int64(len(b))
	switch {
	case r.seen%10 == 0:
		r.lost++
		r.lostBytes += int64(len(b))
		return held
	case r.seen%21 == 0 && held == nil && !r.loses:
		return append([]byte(nil), b...)
	}

	way.Write(b)
	if r.seen%15 == 1 && !r.loses {
		r.duplicated++
		way.Write(b)
	}

	if held != nil {
		r.reversed++
		way.Write(held)
	}

	return nil
}

// wrong returns how a difference between what the relay did and what was counted is to be reported: packets
// that its socket, or the receiver's, had no room for do not count against the code, if a vCPU was stalled
// meanwhile. What was sent and never seen must be in the socket's own count, whatever the machine did, and
// nothing may be neither received nor lost.
func (r *udpRelay) wrong(t *steady.Trial, got *record.Traffic) func(format string, args ...any) {
	t.Helper()
	raw, err := r.front.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}

	var here uint32
	err = raw.Control(func(fd uintptr) { here = (&traffic.Socket{FD: int(fd)}).SocketDrops() })
	if err != nil {
		t.Fatal(err)
	}

	unseen := -r.seen
	for _, f := range got.Flows {
		p := f.Packets
		if p.Sent != p.Received+p.Lost {
			t.Errorf("stream %d: %d packets sent, %d received, %d lost", f.Stream, p.Sent, p.Received, p.Lost)
		}

		unseen += f.Packets.Sent
	}

	if unseen < 0 || unseen > int64(here) {
		t.Errorf("%d packets were sent and not seen by the relay, whose socket had no room for %d", unseen,
			here)
	}

	far := got.Details["far.socket_drops"]
	if here == 0 && far == "0" {
		return t.Errorf
	}

	return func(format string, args ...any) {
		t.Helper()
		t.Timedf("the relay had no room for %d packets, the receiver for %s: %s", here, far,
			fmt.Sprintf(format, args...))
	}
}

func (r *udpRelay) backwards(way *net.UDPConn, to netip.AddrPort) {
	b := make([]byte, 1<<16)
	for {
		n, err := way.Read(b)
		if err != nil {
			return
		}

		if r.delay == 0 {
			r.front.WriteToUDPAddrPort(b[:n], to)
			continue
		}

		late := bytes.Clone(b[:n])
		time.AfterFunc(r.delay, func() { r.front.WriteToUDPAddrPort(late, to) })
	}
}

// tcpRelay passes connections from 127.0.0.2 to 127.0.0.1.
type tcpRelay struct {
	rule   func(n int) (wait time.Duration, passes bool) // of the n-th; nil: all pass at once
	harmAt int                                           // where a byte of each is changed; 0: nowhere

	back string
	cut  atomic.Int64
	wait sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

// through has a load pass the relay on its way to the far end.
func (r *tcpRelay) through(t testing.TB, far *traffic.End, load *record.Load) *tcpRelay {
	t.Helper()
	far.Target, load.Port = relayed, freePort(t)
	front, err := net.ListenTCP("tcp", &net.TCPAddr{IP: relayed.AsSlice(), Port: load.Port})
	if err != nil {
		t.Fatal(err)
	}

	r.back = netip.AddrPortFrom(loopback4, uint16(load.Port)).String()
	r.wait.Go(func() {
		for n := 0; ; n++ {
			c, err := front.AcceptTCP()
			if err != nil {
				return
			}

			r.keep(c)
			r.wait.Go(func() { r.pass(c, n) })
		}
	})
	t.Cleanup(func() {
		front.Close()
		r.mu.Lock()
		for _, c := range r.conns {
			c.Close()
		}

		r.mu.Unlock()
		r.wait.Wait()
	})
	return r
}

func (r *tcpRelay) keep(c net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns = append(r.conns, c)
}

func (r *tcpRelay) pass(c *net.TCPConn, n int) {
	defer c.Close()
	if r.rule != nil {
		wait, passes := r.rule(n)
		if !passes {
			r.cut.Add(1)
			c.SetLinger(0)
			return
		}

		time.Sleep(wait)
	}

	there, err := net.Dial("tcp", r.back)
	if err != nil {
		return
	}
	defer there.Close()
	r.keep(there)
	r.wait.Go(func() {
		io.CopyN(there, c, int64(r.harmAt))
		b := make([]byte, 1)
		if r.harmAt > 0 {
			io.ReadFull(c, b)
			there.Write([]byte{b[0] ^ 0x40})
		}

		io.Copy(there, c)
		there.(*net.TCPConn).CloseWrite()
	})
	io.Copy(c, there)
	c.CloseWrite()
	io.Copy(io.Discard, c) // until the other end closes too
}

// newTCPSink occupies a port.
func newTCPSink(t testing.TB, port int) {
	t.Helper()
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { ln.Close() })
}
