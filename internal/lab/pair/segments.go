package pair

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// leastMSS is the segment that every host takes (RFC 9293, section 3.7.1).
const leastMSS = 536

// smallSegments keeps both ends of a connection to small segments: control gets through where the path drops
// large packets silently, which the run is to find out.
func smallSegments(_, _ string, c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, leastMSS)
	}); e != nil {
		return e
	}
	return err
}
