package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/lab/pair"
)

// intruder attacks a peer without its code: "intruder ADDRESS DURATION". It floods the peer's ports with
// connections and datagrams, scans them, tries codes, and prints at the end how much it did.
type intruder struct {
	at  netip.Addr
	end time.Time

	mu   sync.Mutex
	held []net.Conn // connections that say nothing, the oldest first

	connections, garbage, datagrams, scanned, codes atomic.Int64
}

// maxHeld bounds the silent connections that it holds open at once.
const maxHeld = 300

func intrude() {
	at, err := netip.ParseAddr(os.Args[1])
	d, errD := time.ParseDuration(os.Args[2])
	if err != nil || errD != nil {
		fmt.Fprintln(os.Stderr, "usage: intruder ADDRESS DURATION")
		os.Exit(2)
	}

	i := &intruder{at: at, end: time.Now().Add(d)}
	var all sync.WaitGroup
	for _, deed := range []func(int){i.connect, i.connect, i.connect, i.connect, i.flood, i.scan, i.guess} {
		all.Go(func() {
			for n := 0; time.Now().Before(i.end); n++ {
				deed(n)
			}
		})
	}

	all.Wait()
	fmt.Printf("connections %d, with garbage %d, datagrams %d, scanned %d, codes %d\n",
		i.connections.Load(), i.garbage.Load(), i.datagrams.Load(), i.scanned.Load(), i.codes.Load())
}

// port returns one of the peer's ports, mostly that for the loads.
func (i *intruder) port(n int) uint16 {
	return uint16(app.PeerPort + []int{1, 0, 1, 2, 1, 3, 1, 1}[n%8])
}

// connect opens a connection and holds it, talks garbage, or hangs up.
func (i *intruder) connect(n int) {
	c, err := net.DialTimeout("tcp", netip.AddrPortFrom(i.at, i.port(n)).String(), time.Second)
	if err != nil { // nobody listens there just now
		time.Sleep(200 * time.Microsecond)
		return
	}

	i.connections.Add(1)
	switch n / 8 % 4 {
	case 0:
		c.Close()
	case 1:
		b := make([]byte, 20+n%500)
		rand.Read(b)
		c.Write(b)
		c.Close()
		i.garbage.Add(1)
	default:
		i.hold(c)
	}
}

func (i *intruder) hold(c net.Conn) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.held = append(i.held, c); len(i.held) > maxHeld {
		i.held[0].Close()
		i.held = i.held[1:]
	}
}

// flood sends a burst to each data port: of the loads' sizes and others, half of them as the engine would
// write them, but for the tag.
func (i *intruder) flood(n int) {
	c, err := net.ListenUDP("udp", nil)
	if err != nil {
		return
	}
	defer c.Close()
	sizes := []int{172, 16, 172, 1472, 100, 17, 1, 0}
	for k := range 96 {
		b := make([]byte, sizes[k%len(sizes)])
		rand.Read(b)
		if k%2 == 0 && len(b) >= 16 {
			copy(b[4:], []byte{0, 0, byte(1 + k%7), 0, 0, 0, 0}) // first flow, any phase, low numbers
		}

		to := netip.AddrPortFrom(i.at, uint16(app.PeerPort+1+k%3))
		if _, err := c.WriteToUDPAddrPort(b, to); err == nil {
			i.datagrams.Add(1)
		}
	}

	time.Sleep(2 * time.Millisecond)
}

// scan connects to all ports in turn, the peer's first, and hangs up where somebody answers.
func (i *intruder) scan(n int) {
	port := strconv.Itoa(1 + (app.PeerPort+n)%65535)
	if c, err := net.DialTimeout("tcp", net.JoinHostPort(i.at.String(), port),
		time.Second); err == nil {
		c.Close()
	}

	if i.scanned.Add(1)%32 == 0 {
		time.Sleep(time.Millisecond)
	}
}

// guess tries a code.
func (i *intruder) guess(int) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if v, err := pair.Dial(ctx, netip.AddrPortFrom(i.at, app.PeerPort).String(), pair.NewCode()); err == nil {
		fmt.Println("let in without the code")
		v.Close()
	}

	i.codes.Add(1)
	time.Sleep(time.Millisecond)
}
