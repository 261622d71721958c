package pair

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// defaultMSS is the segment size in bytes that every host accepts (RFC 9293, section 3.7.1).
const defaultMSS = 536

// smallSegments limits the TCP segments of a connection to defaultMSS. Control traffic then passes even on a
// path that silently drops large packets. A run must be able to detect this fault.
func smallSegments(_, _ string, c syscall.RawConn) error {
	var err error
	e := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, defaultMSS)
	})
	if e != nil {
		return e
	}

	return err
}
