package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// dumpSocket is a kept netlink socket with its request and buffer.
type dumpSocket struct {
	fd      int
	what    string
	request []byte
	buf     []byte
}

// answerPatience bounds the wait for the kernel, which answers at once.
const answerPatience = time.Second

// openDump opens a socket that asks for a dump: kind is the message's type, size that of the family's
// header after netlink's own.
func openDump(family int, kind uint16, size int, what string) (*dumpSocket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, family)
	if err != nil {
		return nil, fmt.Errorf("open netlink for %s: %w", what, err)
	}
	patience := unix.NsecToTimeval(int64(answerPatience))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("set patience of netlink for %s: %w", what, err)
	}
	r := make([]byte, kernel.NetlinkHeader+size)
	binary.NativeEndian.PutUint32(r, uint32(len(r)))
	binary.NativeEndian.PutUint16(r[4:], kind)
	binary.NativeEndian.PutUint16(r[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	return &dumpSocket{fd, what, r, make([]byte, 32<<10)}, nil
}

// ask begins a dump. Each has a sequence number of its own, so that the late end of one that was given up
// is not taken for the next one's.
func (s *dumpSocket) ask() error {
	binary.NativeEndian.PutUint32(s.request[8:], binary.NativeEndian.Uint32(s.request[8:])+1)
	if _, err := unix.Write(s.fd, s.request); err != nil {
		return fmt.Errorf("ask for %s: %w", s.what, err)
	}
	return nil
}

// next is a datagram of the dump that was asked for.
func (s *dumpSocket) next() ([]byte, error) {
	for {
		n, err := unix.Read(s.fd, s.buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", s.what, err)
		}
		if n < kernel.NetlinkHeader ||
			binary.NativeEndian.Uint32(s.buf[8:]) == binary.NativeEndian.Uint32(s.request[8:]) {
			return s.buf[:n], nil
		}
	}
}

func (s *dumpSocket) Close() error { return unix.Close(s.fd) }

// of has a dump of classes be that of one device.
func (s *dumpSocket) of(device int32) {
	binary.NativeEndian.PutUint32(s.request[kernel.NetlinkHeader+4:], uint32(device))
}

func deviceName(index int) string {
	if dev, err := net.InterfaceByIndex(index); err == nil {
		return dev.Name
	}
	return "if" + strconv.Itoa(index)
}
