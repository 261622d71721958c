package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// pread reads a kernel file with a raw system call. A normal system call informs Go's scheduler and
// sysmon, which would cost as much CPU time as reading the file.
func pread(fd int, b []byte, offset int64) (int, error) {
	if unsafe.Sizeof(uintptr(0)) < 8 { // because a 32-bit ABI passes the offset in two registers
		return unix.Pread(fd, b, offset)
	}

	n, _, errno := unix.RawSyscall6(unix.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(&b[0])),
		uintptr(len(b)), uintptr(offset), 0, 0)
	if errno != 0 {
		return 0, errno
	}

	return int(n), nil
}

// dumpSocket is a netlink socket with a receive buffer and a prepared dump request.
type dumpSocket struct {
	fd      int
	what    string
	request []byte
	buf     []byte
}

// answerPatience limits the wait for an answer. The kernel normally answers at once.
const answerPatience = time.Second

// openDump opens a socket for dump requests. kind is the type of the message. size is the length of the
// header that the family adds after the netlink header.
func openDump(family int, kind uint16, size int, what string) (*dumpSocket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, family)
	if err != nil {
		return nil, fmt.Errorf("open netlink for %s: %w", what, err)
	}

	patience := unix.NsecToTimeval(int64(answerPatience))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("set the timeout of netlink for %s: %w", what, err)
	}

	r := make([]byte, kernel.NetlinkHeader+size)
	binary.NativeEndian.PutUint32(r, uint32(len(r)))
	binary.NativeEndian.PutUint16(r[4:], kind)
	binary.NativeEndian.PutUint16(r[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	return &dumpSocket{fd, what, r, make([]byte, minDatagram)}, nil
}

// Sizes of receive buffers, in bytes. The kernel makes each datagram of a dump as large as the largest
// receive buffer seen so far, up to 32 KiB (net/netlink/af_netlink.c, netlink_dump). A small buffer is
// cheaper for a few devices. A large one is cheaper for thousands of connections.
const (
	minDatagram   = 8 << 10
	maxDatagram   = 32 << 10
	manyDatagrams = 4
)

// dump requests a dump and calls take for each message, until the dump ends or take returns io.EOF. Each
// request has a new sequence number. Messages left over from an aborted dump are thus not mistaken for part
// of the next dump.
func (s *dumpSocket) dump(take func(kind uint16, body []byte) error) error {
	sequence := binary.NativeEndian.Uint32(s.request[8:]) + 1
	binary.NativeEndian.PutUint32(s.request[8:], sequence)
	_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(s.fd), uintptr(unsafe.Pointer(&s.request[0])),
		uintptr(len(s.request)))
	if errno != 0 {
		return fmt.Errorf("ask for %s: %w", s.what, errno)
	}

	for parts := 0; ; parts++ {
		if parts == manyDatagrams && len(s.buf) < maxDatagram {
			s.buf = make([]byte, maxDatagram)
		}

		n, err := s.receive()
		if errors.Is(err, unix.EINTR) || err == nil && n >= kernel.NetlinkHeader &&
			binary.NativeEndian.Uint32(s.buf[8:]) != sequence {
			continue
		}

		done := false
		if err == nil {
			done, err = kernel.EachMessage(s.buf[:n], take)
		}

		switch {
		case done || err == io.EOF:
			return nil
		case err == unix.EINVAL || err == unix.EOPNOTSUPP:
			return absent("read %s: this kernel does not list them (nf_conntrack_netlink lists connections)",
				s.what)
		case err != nil:
			return fmt.Errorf("read %s: %w", s.what, err)
		}
	}
}

// receive reads one datagram. It tries a raw system call first, because a datagram is usually queued
// already.
func (s *dumpSocket) receive() (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(s.fd), uintptr(unsafe.Pointer(&s.buf[0])),
		uintptr(len(s.buf)), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return unix.Read(s.fd, s.buf)
	}
	return int(n), nil
}

func (s *dumpSocket) Close() error {
	if s == nil {
		return nil
	}
	return unix.Close(s.fd)
}

// of restricts a dump of traffic classes to one device.
func (s *dumpSocket) of(device int32) {
	binary.NativeEndian.PutUint32(s.request[kernel.NetlinkHeader+4:], uint32(device))
}

// kmsg is the file descriptor of /dev/kmsg. Each read returns one record.
type kmsg int

// openKernelLog opens the kernel log at its end, because earlier messages are not part of the observation.
func openKernelLog(path string) (Sampler, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, absent("%s does not exist: the kernel has no readable log", path)
	case errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES):
		return nil, absent("open %s: %v: only root may read the kernel log here (kernel.dmesg_restrict)",
			path, err)
	case err != nil:
		return nil, fmt.Errorf("open %s: %w", path, err)
	}

	if _, err := unix.Seek(fd, 0, unix.SEEK_END); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("seek to the end of %s: %w", path, err)
	}

	return &kernelLogSampler{
		log:   kmsg(fd),
		now:   host.Monotonic,
		buf:   make([]byte, 8192),
		since: host.Monotonic(),
	}, nil
}

func (k kmsg) next(buf []byte) (int, error) {
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(k), uintptr(unsafe.Pointer(&buf[0])),
			uintptr(len(buf)))
		switch {
		case errno == 0 && n > 0:
			return int(n), nil
		case errno == 0 || errno == unix.EAGAIN:
			return 0, errNoRecord
		case errno == unix.EPIPE || errno == unix.EINTR:
			continue // EPIPE: records were overwritten; the sequence numbers show how many
		}
		return 0, fmt.Errorf("read kernel log: %w", errno)
	}
}

func (k kmsg) Close() error { return unix.Close(int(k)) }

// allowedCores returns the cores that the calling thread may run on.
func allowedCores() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("read affinity: %w", err)
	}

	var cores []int
	for c := range len(set) * 64 {
		if set.IsSet(c) {
			cores = append(cores, c)
		}
	}

	return cores, nil
}

// onCore calls do on a core, and then restores the thread's affinity. If the core is offline, it does
// nothing.
func onCore(core int, do func()) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, only unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return fmt.Errorf("read affinity: %w", err)
	}

	only.Set(core)
	if err := unix.SchedSetaffinity(0, &only); errors.Is(err, unix.EINVAL) ||
		errors.Is(err, fs.ErrPermission) {
		return nil
	} else if err != nil {
		return fmt.Errorf("go to core %d: %w", core, err)
	}

	do()
	if err := unix.SchedSetaffinity(0, &before); err != nil {
		return fmt.Errorf("leave core %d: %w", core, err)
	}

	return nil
}
