package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// qdiscSocket is a kept route-netlink socket with its request and buffer.
type qdiscSocket struct {
	fd      int
	request [nlHeader + tcHeader]byte
	buf     []byte
}

// answerPatience bounds the wait for the kernel, which answers at once.
const answerPatience = time.Second

func openQdisc() (Sampler, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open route netlink: %w", err)
	}
	patience := unix.NsecToTimeval(int64(answerPatience))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("set patience of route netlink: %w", err)
	}
	s := &qdiscSampler{s: &qdiscSocket{fd: fd, buf: make([]byte, 32<<10)}}
	r := s.s.request[:]
	binary.NativeEndian.PutUint32(r, uint32(len(r)))
	binary.NativeEndian.PutUint16(r[4:], getQdisc)
	binary.NativeEndian.PutUint16(r[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	if err := s.read(); err != nil {
		s.Close()
		return nil, err
	}
	s.describe()
	return s, nil
}

// dump asks for all queueing disciplines of this network namespace. Each
// dump has a sequence number of its own, so that the late end of one that
// was given up is not taken for the next one's.
func (s *qdiscSocket) dump(list []qdiscLine) ([]qdiscLine, error) {
	sequence := binary.NativeEndian.Uint32(s.request[8:]) + 1
	binary.NativeEndian.PutUint32(s.request[8:], sequence)
	if _, err := unix.Write(s.fd, s.request[:]); err != nil {
		return nil, fmt.Errorf("ask for queueing disciplines: %w", err)
	}
	for {
		n, err := unix.Read(s.fd, s.buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read queueing disciplines: %w", err)
		}
		if n >= nlHeader && binary.NativeEndian.Uint32(s.buf[8:]) != sequence {
			continue
		}
		var done bool
		if list, done, err = parseQdiscs(s.buf[:n], list); err != nil || done {
			return list, err
		}
	}
}

func (s *qdiscSocket) Close() error { return unix.Close(s.fd) }

func deviceName(index int) string {
	if dev, err := net.InterfaceByIndex(index); err == nil {
		return dev.Name
	}
	return "if" + strconv.Itoa(index)
}
