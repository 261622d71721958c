package pair

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// defaultMSS is the segment size in bytes that every host accepts (RFC 9293, section 3.7.1).
const defaultMSS = 536

// smallSegments limits the TCP segments of a connection to defaultMSS. Control traffic then passes even if
// the path silently drops large packets, which is a fault that the run must be able to detect.
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
