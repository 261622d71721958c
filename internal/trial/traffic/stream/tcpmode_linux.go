package stream

import (
	"fmt"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// tcpMode describes how one end moves the data of its streams. For the measurements on which the choice is
// based, see docs/measured/2026-11-21-engine.md.
type tcpMode struct {
	verify bool
	pool   bool // several streams per thread
	// splice makes senders pass pages of the payload to the kernel instead of copying it. This saves time if
	// the kernel segments the data, and costs time if a device does.
	splice bool
	// polled makes receivers poll with a timer instead of being woken. This saves time if the receiver has
	// its own core. With several streams per thread, it also saves time if the device does not merge packets,
	// because every packet would wake the receiver. Wake-ups cost time on the sender's core, which also
	// processes the path: they took a sixth of that core's time.
	polled bool
}

// threadsPerStream is the number of threads for a stream at both ends, which share the cores in a local lab.
// Splicing and, with one stream per thread, polling save time only if each thread has its own core.
// Otherwise, threads that sleep and wake at different times delay each other.
const threadsPerStream = 2

// featuresTo returns the features of the device that leads to an address, or nil if they are unknown.
func featuresTo(to netip.Addr) map[string]bool {
	dev, err := kernel.RouteDevice(to)
	if err != nil {
		return nil
	}

	features, err := kernel.Features(dev)
	if err != nil {
		return nil
	}

	return features
}

// with returns the mode that suits the device towards the other end. calm is true if each thread has its own
// core. A device with unknown features is assumed to segment and merge packets.
func (w tcpMode) with(features map[string]bool, to netip.Addr, calm bool) tcpMode {
	segments := "tx-tcp-segmentation"
	if to.Is6() {
		segments = "tx-tcp6-segmentation"
	}

	whole, known := features[segments]
	w.splice = known && !whole && !w.verify && !w.pool && calm
	joins, known := features["rx-gro"]
	w.polled = known && (calm || w.pool && !joins)
	return w
}

// String describes the mode for the result.
func (w tcpMode) String() string {
	send, take := "write 1 MiB", "truncating"
	switch {
	case w.verify:
		send, take = "write 256 KiB", "every byte verified"
	case w.splice:
		send = "vmsplice 1 MiB"
	case w.pool:
		send = "write 256 KiB in turn"
	}

	if w.polled {
		take += fmt.Sprintf(", polled after %v", tcpPoll)
	}

	threads := "a thread per stream"
	if w.pool {
		threads = "threads shared by streams"
	}

	return fmt.Sprintf("tcp: send by %s, receive %s, %s", send, take, threads)
}

// splicer passes pages to a socket through a pipe. The pages are never written to, so data in transit does
// not change.
type splicer struct{ in, out int }

func newSplicer() (*splicer, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}

	// Ignore the error: a user without the right to enlarge the pipe uses its default size.
	unix.FcntlInt(uintptr(p[1]), unix.F_SETPIPE_SZ, writeSize)
	return &splicer{in: p[1], out: p[0]}, nil
}

func (g *splicer) close() {
	unix.Close(g.in)
	unix.Close(g.out)
}

// splice sends b and returns the number of bytes that the socket accepted. It always empties the pipe,
// because a full pipe would never accept the next pages.
func (g *splicer) splice(p *traffic.Phases, fd int, b []byte) (int, error) {
	iov := unix.Iovec{Base: &b[0]}
	iov.SetLen(len(b))
	piped, _, errno := unix.RawSyscall6(unix.SYS_VMSPLICE, uintptr(g.in), uintptr(unsafe.Pointer(&iov)), 1, 0,
		0, 0)
	if errno != 0 {
		return 0, errno
	}

	sent := 0
	for sent < int(piped) {
		n, _, errno := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(g.out), 0, uintptr(fd), 0,
			piped-uintptr(sent), unix.SPLICE_F_MOVE)
		if traffic.Again(errno) && !p.Over(p.Senders) {
			continue
		}

		if errno != 0 {
			return sent, errno
		}

		sent += int(n)
	}

	return sent, nil
}
