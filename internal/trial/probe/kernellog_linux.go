package probe

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// kmsg is an open /dev/kmsg. Each read returns one record.
type kmsg int

// openKernelLog starts at the end of the log: what was before is not ours.
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
	return &kernelLogSampler{log: kmsg(fd), now: host.Monotonic, buf: make([]byte, 8192),
		since: host.Monotonic()}, nil
}

func (k kmsg) next(buf []byte) (int, error) {
	for {
		n, err := unix.Read(int(k), buf)
		switch {
		case err == nil && n > 0:
			return n, nil
		case err == nil || errors.Is(err, unix.EAGAIN):
			return 0, errNoRecord
		case errors.Is(err, unix.EPIPE) || errors.Is(err, unix.EINTR):
			continue // overwritten before it was read: the sequence shows how many
		}
		return 0, fmt.Errorf("read kernel log: %w", err)
	}
}

func (k kmsg) Close() error { return unix.Close(int(k)) }
