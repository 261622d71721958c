package pair

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// TestControlSendsSmallSegments: a path that drops large packets carries the connection of control in both
// directions.
func TestControlSendsSmallSegments(t *testing.T) {
	ln := listen(t)
	dialled, err := (&net.Dialer{Control: smallSegments}).DialContext(t.Context(), "tcp", ln.Addr().String())
	must(t, err)
	defer dialled.Close()
	accepted, err := ln.Accept()
	must(t, err)
	defer accepted.Close()
	for end, c := range map[string]net.Conn{"dialling": dialled, "accepting": accepted} {
		raw, err := c.(*net.TCPConn).SyscallConn()
		must(t, err)
		size := 0
		e := raw.Control(func(fd uintptr) {
			size, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG)
		})
		if e != nil || err != nil {
			t.Fatal(e, err)
		}

		if size > defaultMSS {
			t.Errorf("the %s end sends segments of %d bytes, want at most %d", end, size, defaultMSS)
		}
	}
}
