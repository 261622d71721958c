//go:build linux || freebsd

package traffic

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// SetCongestion gives a stream its congestion control, which its listener could not, and says which it has
// (tcp(7), and tcp(4) of FreeBSD).
func SetCongestion(fd int, want string) (string, error) {
	if want != "" {
		unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, want) // read back below
	}
	got, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	if err != nil || want != "" && got != want {
		return "", fmt.Errorf("congestion control is %q after setting %q: %v", got, want, err)
	}
	return got, nil
}
