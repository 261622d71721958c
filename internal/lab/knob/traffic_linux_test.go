package knob

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// node is a thread in a network namespace of its own. Sockets opened in do belong to it.
type node struct {
	tid   int
	calls chan func()
}

func newNode(t *testing.T) node {
	t.Helper()
	n := node{calls: make(chan func())}
	tid := make(chan int)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread is thrown away
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Errorf("unshare network namespace: %v", err)
		}

		tid <- unix.Gettid()
		for f := range n.calls {
			f()
		}
	}()
	n.tid = <-tid
	t.Cleanup(func() { close(n.calls) })
	return n
}

func (n node) do(t *testing.T, f func() error) {
	t.Helper()
	done := make(chan error)
	n.calls <- func() { done <- f() }
	must(t, <-done)
}

// set applies a state.
func (n node) set(t *testing.T, k Knob, p Place, s State) {
	t.Helper()
	n.do(t, func() error { return k.Apply(context.Background(), p, s) })
}

func (n node) counters(t *testing.T, dev string) (c kernel.LinkCounters) {
	t.Helper()
	n.do(t, func() (err error) { c, err = kernel.Counters(dev); return err })
	return c
}

// route is client – router – server, with the names a plan would use.
type route struct{ client, router, server node }

func newRoute(t *testing.T) route {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skip: needs root to make a network namespace")
	}

	r := route{newNode(t), newNode(t), newNode(t)}
	link := func(a, b node, nameA, nameB, addrA, addrB, behindA, behindB string) {
		a.do(t, func() error {
			return kernel.AddVeth(kernel.VethEnd{Name: nameA}, kernel.VethEnd{Name: nameB, PID: b.tid}, 1)
		})
		end := func(n node, dev, addr, via, behind string) {
			n.do(t, func() error {
				if err := kernel.Up(dev); err != nil {
					return err
				}

				if err := kernel.AddAddress(dev, netip.MustParsePrefix(addr)); err != nil || behind == "" {
					return err
				}
				return kernel.AddRoute(netip.MustParsePrefix(behind), netip.MustParsePrefix(via).Addr(), dev)
			})
		}
		end(a, nameA, addrA, addrB, behindB)
		end(b, nameB, addrB, addrA, behindA)
	}
	link(r.client, r.router, "near", "lan", "198.18.0.2/24", "198.18.0.1/24", "", "198.18.1.0/24")
	link(r.router, r.server, "wan", "far", "198.18.1.1/24", "198.18.1.2/24", "198.18.0.0/24", "")
	r.router.set(t, IPForward(), Place{}, "ipv4")
	// A kernel that has many links to bring up lets a new one wait for a second (net/core/link_watch.c).
	if !r.outward(t, arrives).IsValid() {
		t.Fatal("no datagram crosses the router")
	}

	return r
}

func (r route) place() Place {
	return Place{
		Node:    "router",
		Ports:   []string{"lan", "wan"},
		WAN:     "wan",
		Inside:  []string{"198.18.0.2"},
		Outside: []string{"198.18.1.1/24"},
	}
}

// outward returns who the server sees a datagram of the client's come from, and inward who the client sees
// one of the server's to the router's port 20999 come from.
func (r route) outward(t *testing.T, patience time.Duration) netip.Addr {
	t.Helper()
	return datagram(t, r.client, r.server, "198.18.1.2:20000", "198.18.1.2:20000", patience)
}

func (r route) inward(t *testing.T, patience time.Duration) netip.Addr {
	t.Helper()
	return datagram(t, r.server, r.client, "198.18.0.2:20999", "198.18.1.1:20999", patience)
}

// dial opens the client's socket to the server; nobody need listen.
func (r route) dial(t *testing.T) (c net.Conn) {
	t.Helper()
	r.client.do(t, func() (err error) { c, err = net.Dial("udp4", "198.18.1.2:20000"); return err })
	return c
}

// How long a datagram may take that should arrive on a busy machine, and how long one that should not is
// waited for.
const arrives, stays = 5 * time.Second, 300 * time.Millisecond

// datagram sends some from one node to another until one arrives or the time is over, and says who it came
// from; an invalid address if none arrived.
func datagram(t *testing.T, from, to node, listen, target string, patience time.Duration) netip.Addr {
	t.Helper()
	var in, out net.PacketConn
	to.do(t, func() (err error) { in, err = net.ListenPacket("udp4", listen); return err })
	from.do(t, func() (err error) { out, err = net.ListenPacket("udp4", "0.0.0.0:0"); return err })
	defer in.Close()
	defer out.Close()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if _, err := out.WriteTo([]byte("x"),
			net.UDPAddrFromAddrPort(netip.MustParseAddrPort(target))); err != nil {
			t.Fatal(err)
		}

		must(t, in.SetReadDeadline(time.Now().Add(stays)))
		if _, source, err := in.ReadFrom(make([]byte, 10)); err == nil {
			return source.(*net.UDPAddr).AddrPort().Addr().Unmap()
		}
	}

	return netip.Addr{}
}

func TestNATTranslates(t *testing.T) {
	r := newRoute(t)
	client := netip.MustParseAddr("198.18.0.2")
	wan := netip.MustParseAddr("198.18.1.1")
	server := netip.MustParseAddr("198.18.1.2")
	tests := []struct {
		mode          State
		outward, port netip.Addr // who the server sees; who the client sees through the forward
	}{
		{"off", client, netip.Addr{}},
		{"masquerade", wan, netip.Addr{}},
		{"forward", client, server},
		{"off", client, netip.Addr{}},
	}
	for _, tt := range tests {
		r.router.set(t, NAT(), r.place(), tt.mode)
		if got := r.outward(t, arrives); got != tt.outward {
			t.Errorf("nat %s: the server sees %v, want %v", tt.mode, got, tt.outward)
		}

		patience := arrives
		if !tt.port.IsValid() {
			patience = stays
		}

		if got := r.inward(t, patience); got != tt.port {
			t.Errorf("nat %s: the client sees %v through the forward, want %v", tt.mode, got, tt.port)
		}
	}
}

// TestLinkMTUForgetsNarrowPaths: a node that was told of a narrow link on the path sends large packets again
// once the links are set anew.
func TestLinkMTUForgetsNarrowPaths(t *testing.T) {
	r := newRoute(t)
	// refused tells whether the client comes to think the path too narrow.
	refused := func(patience time.Duration) bool {
		var out net.Conn
		r.client.do(t, func() (err error) {
			d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
				return c.Control(func(fd uintptr) {
					must(t, unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER,
						unix.IP_PMTUDISC_DO))
				})
			}}
			out, err = d.Dial("udp4", "198.18.1.2:20000")
			return err
		})
		defer out.Close()
		deadline := time.Now().Add(patience)
		for ; time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			if _, err := out.Write(make([]byte, 1472)); errors.Is(err, unix.EMSGSIZE) {
				return true
			}
		}

		return false
	}
	r.router.set(t, LinkMTU(), Place{Port: "wan"}, "1400")
	if !refused(arrives) {
		t.Fatal("packets of 1500 bytes into a path of 1400: the client goes on, want it told")
	}

	r.router.set(t, LinkMTU(), Place{Port: "wan"}, "1500")
	r.client.set(t, LinkMTU(), Place{Port: "near"}, "1500")
	if refused(stays) {
		t.Error("packets of 1500 bytes after the links were set to 1500: the client refuses them, want " +
			"them sent")
	}
}

// TestNATGoesByThePort: where the place names a device, that is the WAN's.
func TestNATGoesByThePort(t *testing.T) {
	r := newRoute(t)
	place := r.place()
	place.Port, place.WAN = "wan", "wan0"
	r.router.set(t, NAT(), place, "masquerade")
	want := netip.MustParseAddr("198.18.1.1")
	got := r.outward(t, arrives)
	if got != want {
		t.Errorf("nat masquerade on wan: the server sees %v, want %v", got, want)
	}
}

// TestNATTranslatesBehindATag: the rules are those of the device with the tag.
func TestNATTranslatesBehindATag(t *testing.T) {
	r := newRoute(t)
	var a check.Answer
	r.router.do(t, func() error {
		a = VLAN().Check(context.Background(), Place{Port: "wan"}, "10")
		return nil
	})
	if a.State == check.No { // TestNATGoesByThePort holds without it
		t.Logf("%v: %s", a.State, a.Reason)
		return
	}

	r.router.set(t, VLAN(), Place{Port: "wan"}, "10")
	r.server.set(t, VLAN(), Place{Port: "far"}, "10")
	place := r.place()
	place.Port = VLANDevice("wan", "10")
	r.router.set(t, NAT(), place, "masquerade")
	wan := netip.MustParseAddr("198.18.1.1")
	server := netip.MustParseAddr("198.18.1.2")
	if got := r.outward(t, arrives); got != wan {
		t.Errorf("nat masquerade: the server sees %v, want %v", got, wan)
	}

	r.router.set(t, NAT(), place, "forward")
	if got := r.inward(t, arrives); got != server {
		t.Errorf("nat forward: the client sees %v, want %v", got, server)
	}
}

func TestFirewallLetsTrafficPass(t *testing.T) {
	r := newRoute(t)
	for _, s := range []State{"off", "200", "0 stateful", "200 stateful", "200 in a set",
		"200 in a map stateful log"} {
		r.router.set(t, Firewall(), r.place(), s)
		if !r.outward(t, arrives).IsValid() {
			t.Errorf("firewall %s: nothing arrives, want the datagram", s)
		}
	}
}

// TestOffloadDecidesPacketSize looks at the mean size of what the router receives while TCP data flows
// through it.
func TestOffloadDecidesPacketSize(t *testing.T) {
	r := newRoute(t)
	for _, s := range []State{"wire", "super"} {
		for n, devs := range map[node][]string{r.client: {"near"}, r.router: {"lan", "wan"},
			r.server: {"far"}} {
			n.set(t, Offload(), Place{Ports: devs}, s)
		}

		before := r.router.counters(t, "lan")
		transfer(t, r, 8<<20)
		after := r.router.counters(t, "lan")
		size := float64(after.RxBytes-before.RxBytes) / float64(after.RxPackets-before.RxPackets)
		if (s == "wire") != (size <= 1514) {
			t.Errorf("offload %s: packets of %.0f bytes cross on average, want them %s", s, size,
				map[State]string{"wire": "no longer than 1514", "super": "longer than 1514"}[s])
		}
	}
}

func transfer(t *testing.T, r route, bytes int64) {
	t.Helper()
	var l net.Listener
	r.server.do(t, func() (err error) { l, err = net.Listen("tcp4", "198.18.1.2:20000"); return err })
	defer l.Close()
	received := make(chan int64, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			received <- -1
			return
		}

		n, _ := io.Copy(io.Discard, c)
		c.Close()
		received <- n
	}()
	var c net.Conn
	r.client.do(t, func() (err error) {
		c, err = net.DialTimeout("tcp4", "198.18.1.2:20000", 2*time.Second)
		return err
	})
	block := make([]byte, 1<<20)
	for sent := int64(0); sent < bytes; sent += int64(len(block)) {
		if _, err := c.Write(block); err != nil {
			t.Fatal(err)
		}
	}

	c.Close()
	if n := <-received; n != bytes {
		t.Fatalf("%d bytes arrived, want %d", n, bytes)
	}
}

// TestMSSClampLowersSegments: the server is told smaller segments than the client can take.
func TestMSSClampLowersSegments(t *testing.T) {
	r := newRoute(t)
	var l net.Listener
	r.server.do(t, func() (err error) { l, err = net.Listen("tcp4", "198.18.1.2:20000"); return err })
	defer l.Close()
	told := func(text string) (mss int) {
		r.router.set(t, MSSClamp(), Place{}, State(text))
		r.client.do(t, func() error {
			c, err := net.DialTimeout("tcp4", "198.18.1.2:20000", 2*time.Second)
			if err == nil {
				defer c.Close()
			}
			return err
		})
		c, err := l.Accept()
		must(t, err)
		defer c.Close()
		raw, err := c.(*net.TCPConn).SyscallConn()
		must(t, err)
		_ = raw.Control(func(fd uintptr) {
			mss, err = unix.GetsockoptInt(int(fd), unix.SOL_TCP, unix.TCP_MAXSEG)
		})
		must(t, err)
		return mss
	}
	plain := told("off")
	if got := told("1000"); got != plain-(1460-1000) {
		t.Errorf("clamped to 1000: segments of %d, want %d less than %d", got, 1460-1000, plain)
	}

	if got := told("9000"); got != plain {
		t.Errorf("clamped to 9000: got %d, want %d, which is less", got, plain)
	}

	r.router.do(t, func() error { return kernel.SetMTU("lan", 1300) })
	if got := told("pmtu"); got != plain-200 {
		t.Errorf("clamped to the path's MTU: got %d, want 200 less than %d", got, plain)
	}

	r.router.do(t, func() error { return kernel.SetMTU("lan", 1500) })
	if got := told("off"); got != plain {
		t.Errorf("put back: got %d, want %d", got, plain)
	}
}

// TestGROFlushTimeoutMergesPackets: a router that waits makes one packet of several datagrams that come one
// by one.
func TestGROFlushTimeoutMergesPackets(t *testing.T) {
	r := newRoute(t)
	r.router.do(t, func() error { // the settings are in the namespace's /sys
		return errors.Join(unix.Unshare(unix.CLONE_NEWNS),
			unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount("sysfs", "/sys", "sysfs", 0, ""))
	})
	lan := Place{Port: "lan"}
	merging, err := Offload().Parse("gro=on udp-gro=on")
	must(t, err)
	r.router.set(t, Offload(), lan, merging)
	out := r.dial(t)
	defer out.Close()
	const datagrams = 200
	leaving := func(level State) uint64 {
		r.router.set(t, GROFlushTimeout(), lan, level)
		before := r.router.counters(t, "wan")
		for range datagrams {
			_, _ = out.Write(make([]byte, 1000)) // nobody listens, which the server may say
			time.Sleep(200 * time.Microsecond)
		}

		time.Sleep(stays)
		return r.router.counters(t, "wan").TxPackets - before.TxPackets
	}
	at, waiting := leaving("off"), leaving("20ms")
	if at == 0 || waiting > at/2 {
		t.Errorf("of %d datagrams the router makes %d packets, and %d where it waits for others; want less "+
			"than half of that", datagrams, at, waiting)
	}
}
