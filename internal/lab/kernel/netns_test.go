//go:build linux

package kernel

import (
	"context"
	"net"
	"net/netip"
	"reflect"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
)

// inNamespace runs f in a network namespace that ends with f.
func inNamespace(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	apart.Network(t, func(context.Context) error { f(t); return nil })
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
	must(t, AddVeth(VethEnd{Name: "a0"}, VethEnd{Name: "b0"}, 2))
	for _, dev := range []string{"a0", "b0"} {
		must(t, SetMTU(dev, 1400))
		must(t, Up(dev))
	}
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
