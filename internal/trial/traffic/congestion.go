//go:build linux || freebsd

package traffic

import (
	"cmp"
	"fmt"

	"golang.org/x/sys/unix"
)

// SetCongestion sets the congestion control of a stream. It is needed because accepted sockets inherit the
// congestion control of their listener, which may serve streams with different ones. It returns the actual
// congestion control (tcp(7); tcp(4) of FreeBSD). An empty name keeps the system's default.
func SetCongestion(fd int, want string) (string, error) {
	var refused error
	if want != "" {
		refused = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, want)
	}

	got, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	if err != nil || want != "" && got != want {
		return "", fmt.Errorf("congestion control is %q after setting %q: %w", got, want,
			cmp.Or(refused, err))
	}

	return got, nil
}

// TryCongestion is like SetCongestion, for a new, unconnected socket.
func TryCongestion(name string) (string, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("open a TCP socket: %w", err)
	}
	defer unix.Close(fd)
	return SetCongestion(fd, name)
}
