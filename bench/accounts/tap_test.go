package accounts

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// sight holds what a tap saw of the window: packets; those that came again, that came after one with a higher
// number (reordered, as RFC 4737 counts), and that came in order after a pause.
type sight struct{ Packets, Again, Late, Paused int64 }

// pause is longer than the distance of packets, and shorter than netem's delay.
const pause = 20 * time.Millisecond

// tap says "ready", looks at what comes in at the WAN until its input ends, and prints what it saw. It reads
// the numbers by itself.
func tap(in io.Reader, out io.Writer) error {
	fd, err := openTap("wan")
	if err != nil {
		return err
	}

	var stop atomic.Bool
	fmt.Fprintln(out, "ready")
	go func() {
		io.Copy(io.Discard, in)
		stop.Store(true)
	}()
	var seen sight
	came := map[uint64]bool{}
	next := uint64(0)
	last := time.Now()
	b := make([]byte, 2048)
	for {
		n, err := unix.Read(fd, b)
		switch {
		case err == unix.EAGAIN && stop.Load(): // all was read
			return report(fd, seen, out)
		case err == unix.EAGAIN || err == unix.EINTR:
			continue
		case err != nil:
			return os.NewSyscallError("read from the tap", err)
		case !ofWindow(b[:n]):
			continue
		}

		seen.Packets++
		now := time.Now()
		number := binary.BigEndian.Uint64(b[28+datagramMark/8:]) >> 16 & (1<<40 - 1)
		switch {
		case came[number]:
			seen.Again++
		case number < next:
			seen.Late++
		case now.Sub(last) > pause && seen.Packets > 1:
			seen.Paused++
		}

		came[number], next, last = true, max(next, number+1), now
	}
}

// openTap returns a socket that gets the IPv4 packets that come in at a device.
func openTap(device string) (int, error) {
	i, err := net.InterfaceByName(device)
	if err != nil {
		return -1, err
	}

	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("open a socket of AF_PACKET", err)
	}

	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20); err != nil {
		return -1, os.NewSyscallError("give the tap room", err)
	}

	idle := unix.NsecToTimeval(int64(100 * time.Millisecond))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &idle); err != nil {
		return -1, os.NewSyscallError("bound the tap's wait", err)
	}

	ip := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_IP))
	return fd, os.NewSyscallError("tap "+device, unix.Bind(fd, &unix.SockaddrLinklayer{
		Protocol: ip,
		Ifindex:  i.Index,
	}))
}

func report(fd int, seen sight, out io.Writer) error {
	stats, err := unix.GetsockoptTpacketStats(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return os.NewSyscallError("read the tap's counters", err)
	}

	if stats.Drops > 0 {
		return fmt.Errorf("the tap missed %d packets", stats.Drops)
	}

	return json.NewEncoder(out).Encode(seen)
}
