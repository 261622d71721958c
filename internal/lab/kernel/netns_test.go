//go:build linux

package kernel

import (
	"net"
	"net/netip"
	"os"
	"reflect"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// inNamespace runs f on a thread of its own in a fresh network namespace; the thread ends with f, and the
// namespace with it.
func inNamespace(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skip: needs root to make a network namespace")
	}

	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread is thrown away
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Errorf("unshare network namespace: %v", err)
			return
		}

		f(t)
	}()
	<-done
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
		runtime.Goexit()
	}
}

// reads wants something read to be as expected, as in reads(t, "mtu", 1400)(MTU("a0")).
func reads[T any](t *testing.T, what string, want T) func(got T, err error) {
	t.Helper()
	return func(got T, err error) {
		t.Helper()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, %v, want %v", what, got, err, want)
		}
	}
}

func pair(t *testing.T) {
	t.Helper()
	must(t, AddVeth(VethEnd{Name: "a0", MTU: 1400}, VethEnd{Name: "b0", MTU: 1400}, 2))
	must(t, Up("a0"))
	must(t, Up("b0"))
}

func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }
func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// send sends n datagrams of 100 bytes from this thread's namespace.
func send(t *testing.T, to string, n int) {
	t.Helper()
	ap := netip.MustParseAddrPort(to)
	family := unix.AF_INET
	sa := unix.Sockaddr(nil)
	if ap.Addr().Is4() {
		sa = &unix.SockaddrInet4{Port: int(ap.Port()), Addr: ap.Addr().As4()}
	} else {
		family, sa = unix.AF_INET6, &unix.SockaddrInet6{Port: int(ap.Port()), Addr: ap.Addr().As16()}
	}

	fd, err := unix.Socket(family, unix.SOCK_DGRAM, 0)
	must(t, err)
	defer unix.Close(fd)
	for range n {
		must(t, unix.Sendto(fd, make([]byte, 100), 0, sa))
	}
}

// neighbour fixes the layer-2 address of a neighbour on dev: that of another device.
func neighbour(t *testing.T, dev, ip, of string) {
	t.Helper()
	l, err := find(dev)
	must(t, err)
	must(t, netlink.NeighSet(&netlink.Neigh{
		LinkIndex:    l.Attrs().Index,
		State:        netlink.NUD_PERMANENT,
		IP:           addr(ip).AsSlice(),
		HardwareAddr: hardware(t, of),
	}))
}

func hardware(t *testing.T, dev string) net.HardwareAddr {
	t.Helper()
	l, err := find(dev)
	must(t, err)
	return l.Attrs().HardwareAddr
}
