//go:build linux || freebsd

package stream

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// hasCongestion tries a congestion control on a socket that goes nowhere.
func hasCongestion(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return fmt.Errorf("open a TCP socket: %w", err)
	}
	defer unix.Close(fd)
	_, err = traffic.SetCongestion(fd, name)
	return err
}

// setCongestion gives a stream its congestion control and says which it has.
func setCongestion(c *net.TCPConn, want string) (got string, err error) {
	err = control(c, func(fd int) (err error) {
		got, err = traffic.SetCongestion(fd, want)
		return err
	})
	return got, err
}
