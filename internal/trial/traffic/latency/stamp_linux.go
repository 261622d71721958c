package latency

import (
	"encoding/binary"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// stampedSocket receives datagrams with the kernel's time stamps.
type stampedSocket struct {
	traffic.Socket
	buffer  []byte
	control [256]byte
	from    unix.RawSockaddrInet6 // large enough for either family
	vector  unix.Iovec
	header  unix.Msghdr
}

const (
	scmTimestamping   = unix.SO_TIMESTAMPING // type of the control message, which is the number of its option
	originTimestamp   = 4                    // SO_EE_ORIGIN_TIMESTAMPING from linux/errqueue.h
	stampEntersQueue  = 1                    // SCM_TSTAMP_SCHED
	receiveTimeout    = 20 * time.Millisecond
	timestampingProbe = unix.SOF_TIMESTAMPING_TX_SCHED | unix.SOF_TIMESTAMPING_RX_SOFTWARE |
		unix.SOF_TIMESTAMPING_SOFTWARE | unix.SOF_TIMESTAMPING_OPT_ID | unix.SOF_TIMESTAMPING_OPT_TSONLY
)

func newStampedSocket(fd, room int) *stampedSocket {
	s := &stampedSocket{Socket: traffic.Socket{FD: fd}, buffer: make([]byte, room)}
	tv := unix.NsecToTimeval(int64(receiveTimeout))
	unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
	s.vector.Base = &s.buffer[0]
	s.vector.SetLen(room)
	s.header.Iov = &s.vector
	s.header.SetIovlen(1)
	return s
}

// receive returns a datagram and its control messages. The flags select the socket's queue or the error
// queue. receive waits for at most receiveTimeout.
func (s *stampedSocket) receive(flags int) (n int, control []byte, err error) {
	s.header.Control = &s.control[0]
	s.header.SetControllen(len(s.control))
	s.header.Name = (*byte)(unsafe.Pointer(&s.from))
	s.header.Namelen = uint32(unsafe.Sizeof(s.from))
	n, err = traffic.Returned(unix.RawSyscall(unix.SYS_RECVMSG, uintptr(s.FD),
		uintptr(unsafe.Pointer(&s.header)), uintptr(flags)))
	return n, s.control[:s.header.Controllen], err
}

// reply sends b to the sender of the last datagram.
func (s *stampedSocket) reply(b []byte) error {
	_, err := traffic.Returned(unix.RawSyscall6(unix.SYS_SENDTO, uintptr(s.FD),
		uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, uintptr(unsafe.Pointer(&s.from)),
		uintptr(s.header.Namelen)))
	return err
}

// source returns the sender of the last datagram.
func (s *stampedSocket) source() netip.AddrPort {
	port := binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&s.from.Port))[:]) // same offset in both types
	if s.from.Family == unix.AF_INET {
		four := (*unix.RawSockaddrInet4)(unsafe.Pointer(&s.from))
		return netip.AddrPortFrom(netip.AddrFrom4(four.Addr), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom16(s.from.Addr), port)
}

// stamps holds the time stamps parsed from control messages.
type stamps struct {
	at  int64  // CLOCK_REALTIME in ns; 0 means none
	id  uint32 // number of the sent datagram, from 0
	tx  bool   // the message is from the error queue
	who uint32 // stage of sending at which the stamp was taken (SCM_TSTAMP_*)
}

func readStamps(control []byte) (s stamps) {
	for len(control) >= unix.SizeofCmsghdr {
		h, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			return s
		}

		control = rest
		switch {
		case h.Level == unix.SOL_SOCKET && (h.Type == scmTimestamping || h.Type == traffic.ScmTimestampNS):
			// SCM_TIMESTAMPING has three time stamps, the first of which is the software time stamp.
			if len(data) >= int(unsafe.Sizeof(unix.Timespec{})) {
				s.at = (*unix.Timespec)(unsafe.Pointer(&data[0])).Nano()
			}
		case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_RECVERR,
			h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_RECVERR:
			if len(data) >= int(unsafe.Sizeof(unix.SockExtendedErr{})) {
				e := (*unix.SockExtendedErr)(unsafe.Pointer(&data[0]))
				s.tx = e.Origin == originTimestamp
				s.id = e.Data
				s.who = e.Info
			}
		}
	}
	return s
}
