package shortflow

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Threads that carry flows use raw system calls; see traffic.Write. None of the calls blocks.

// dialer opens connections from an address. Their local ports are arbitrary.
type dialer struct {
	from, to *traffic.RawAddr
	family   int
	load     record.Load
	control  string // congestion control to set, or "" if it is the default
}

func newDialer(from netip.Addr, to netip.AddrPort, load record.Load, control string) *dialer {
	family := unix.AF_INET6
	if to.Addr().Unmap().Is4() {
		family = unix.AF_INET
	}
	return &dialer{
		from:    traffic.NewRawAddr(netip.AddrPortFrom(from, 0)),
		to:      traffic.NewRawAddr(to),
		family:  family,
		load:    load,
		control: control,
	}
}

// dial starts to connect. The kernel chooses the local port when it knows the destination
// (IP_BIND_ADDRESS_NO_PORT), so that each destination can be reached from all ports.
func (d *dialer) dial() (int, error) {
	r, _, errno := unix.RawSyscall(unix.SYS_SOCKET, uintptr(d.family),
		unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if errno != 0 {
		return -1, errno
	}

	fd := int(r)
	if err := d.prepare(fd); err != nil {
		closeFlow(fd)
		return -1, err
	}

	_, _, errno = unix.RawSyscall(unix.SYS_CONNECT, r, uintptr(unsafe.Pointer(&d.to.Raw)),
		uintptr(d.to.Length))
	if errno != 0 && errno != unix.EINPROGRESS {
		closeFlow(fd)
		return -1, errno
	}

	return fd, nil
}

func (d *dialer) prepare(fd int) error {
	setFlag(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT) // before Linux 4.2, bind chooses the port
	_, _, errno := unix.RawSyscall(unix.SYS_BIND, uintptr(fd), uintptr(unsafe.Pointer(&d.from.Raw)),
		uintptr(d.from.Length))
	if errno != 0 {
		return errno
	}

	if d.control != "" || d.load.MSS > 0 || d.load.Buffer > 0 || d.load.DSCP > 0 {
		if err := traffic.TuneTCP(fd, d.load, d.control); err != nil {
			return err
		}
	}

	setFlag(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY)
	return nil
}

func setFlag(fd, level, option int) {
	one := int32(1)
	unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&one)), unsafe.Sizeof(one), 0)
}

// pendingError returns the result of a connection attempt in progress.
func pendingError(fd int) error {
	var code int32
	size := uint32(unsafe.Sizeof(code))
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_ERROR,
		uintptr(unsafe.Pointer(&code)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}

	if code != 0 {
		return unix.Errno(code)
	}

	return nil
}

func acceptFlow(listener int) (int, error) {
	return traffic.Returned(unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(listener), 0, 0,
		unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0))
}

func sendFlow(fd int, b []byte, flags int) (int, error) {
	return traffic.Returned(unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[0])),
		uintptr(len(b)), uintptr(flags|unix.MSG_NOSIGNAL), 0, 0))
}

func closeFlow(fd int) { unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

// abortFlow closes a connection with a reset, which discards queued data.
func abortFlow(fd int) {
	linger := unix.Linger{Onoff: 1}
	unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_LINGER,
		uintptr(unsafe.Pointer(&linger)), unsafe.Sizeof(linger), 0)
	closeFlow(fd)
}

// alarm wakes an epoll instance at a time of CLOCK_MONOTONIC. It is needed because epoll's timeouts have a
// resolution of only a millisecond.
type alarm struct {
	fd  int
	due int64
}

func newAlarm(poll int) (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, err
	}

	e := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: noSlot}
	if err := unix.EpollCtl(poll, unix.EPOLL_CTL_ADD, fd, &e); err != nil {
		unix.Close(fd)
		return nil, err
	}

	return &alarm{fd: fd}, nil
}

func (a *alarm) set(due int64) {
	if due == a.due {
		return
	}

	a.due = due
	unix.TimerfdSettime(a.fd, unix.TFD_TIMER_ABSTIME, &unix.ItimerSpec{Value: unix.NsecToTimespec(due)}, nil)
}
