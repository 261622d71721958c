package iperf3

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAHeldPortIsKept: until it is released nobody else binds a port for a server of iperf3, which listens on
// it meanwhile, as one that reuses addresses may.
func TestAHeldPortIsKept(t *testing.T) {
	for _, addr := range []string{"127.0.0.1", "::1"} {
		port, release, err := holdPort(netip.MustParseAddr(addr))
		if err != nil {
			t.Fatal(addr, err)
		}
		defer release()
		at := &net.TCPAddr{IP: net.ParseIP(addr), Port: port}
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		bound := unix.Bind(fd, &unix.SockaddrInet6{Port: port, Addr: [16]byte(at.IP.To16())})
		if !errors.Is(bound, unix.EADDRINUSE) {
			t.Errorf("%s: another socket binds the port: %v", addr, bound)
		}

		ln, err := net.ListenTCP("tcp", at)
		if err != nil {
			t.Fatalf("%s: a server cannot listen: %v", addr, err)
		}

		ln.Close()
	}
}

func TestListens(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue
   0: 0100007F:14B3 00000000:0000 0A 00000000:00000000 00:00000000
   1: 0100007F:14B4 0100007F:9999 01 00000000:00000000 00:00000000`
	for port, want := range map[int]bool{0x14B3: true, 0x14B4: false, 0x9999: false, 1: false} {
		got := listens([]byte(table), port)
		if got != want {
			t.Errorf("port %d: listening %v, want %v", port, got, want)
		}
	}
}
